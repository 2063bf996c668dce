"""Names of fluid 1.8 that real programs use, with the behaviour of Paddle's private ones."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run.nets import AllReduce, Reduce, strategies
from tests.fixtures import collective_cases, feed_fetch_cases, surface_cases

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = json.loads((FIXTURES / "names.json").read_text())
RECORDED = json.loads((FIXTURES / "surface.json").read_text())


@pytest.fixture(scope="module")
def objects():
    """One of every class whose members the list of names has."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        variable = fluid.layers.fc(fluid.data("x", [2, 3]), 2)
    scope = fluid.core.Scope()
    return {
        "Block": main.global_block(),
        "BuildStrategy": fluid.BuildStrategy(),
        "CompiledProgram": fluid.CompiledProgram(main),
        "DataFeeder": fluid.DataFeeder([variable], fluid.CPUPlace()),
        "ExecutionStrategy": fluid.ExecutionStrategy(),
        "Executor": fluid.Executor(fluid.CPUPlace()),
        "LoDTensor": fluid.LoDTensor(),
        "Operator": main.global_block().ops[0],
        "Optimizer": fluid.optimizer.SGD(0.1),
        "ParallelExecutor": fluid.ParallelExecutor,
        "Program": main,
        "Scope": scope,
        "SelectedRows": fluid.core.SelectedRows(),
        "Variable": variable,
        "core.Variable": scope.var("v"),
    }


@pytest.mark.parametrize("kind", ["public", "private"])
def test_names_that_real_programs_use_are_there(objects, kind):
    assert [name for name in NAMES[kind] if not _found(name, objects)] == []


def _found(name, objects):
    if name.startswith("<"):
        owner, members = name[1:].split(">.")
        value = objects[owner]
    else:
        value, members = fluid, name.removeprefix("fluid.")
    for member in members.split("."):
        if not hasattr(value, member):
            return False
        value = getattr(value, member)
    return True


CASES = [*surface_cases.CASES, *feed_fetch_cases.CASES, *collective_cases.CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_private_name_behaves_as_recorded(case):
    assert json.loads(json.dumps(case(fluid))) == RECORDED[case.__name__]


def test_weights_decay_by_nothing_or_by_a_variable():
    extend = fluid.contrib.extend_with_decoupled_weight_decay
    types = []
    for decay in (0.0, None):
        main = fluid.Program()
        with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
            coefficient = fluid.layers.fill_constant([1], "float32", 0.1)
            loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
            made = extend(fluid.optimizer.SGD)(coefficient if decay is None else decay,
                                               learning_rate=0.1)  # fmt: skip
            made.minimize(loss)
        types.append([op.type for op in main.global_block().ops])
    assert "assign" not in types[0]
    assert types[1].count("elementwise_mul") == types[1].count("assign") == 2


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_weights_decay_the_same_on_two_devices(mode):
    def replicas(main, loss):
        return fluid.CompiledProgram(main).with_data_parallel(
            loss.name, strategies(mode)[0], places=[fluid.CPUPlace()] * 2
        )

    found = surface_cases.decoupled_weight_decay(fluid, replicas)
    for (_, values), (_, expected) in zip(
        found[2:], RECORDED["decoupled_weight_decay"][2:], strict=True
    ):
        np.testing.assert_allclose(values, expected, atol=1.1e-5)


def test_tensor_shares_its_memory_by_dlpack():
    tensor = fluid.LoDTensor()
    tensor.set(np.arange(6, dtype="float32").reshape(2, 3))

    class Holder:
        def __dlpack__(self, **_):
            return tensor._to_dlpack()

        def __dlpack_device__(self):
            return (1, 0)

    np.testing.assert_array_equal(np.from_dlpack(Holder()), np.array(tensor))


def test_operators_and_their_neighbours_are_counted():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4])
        hidden = fluid.layers.fc(fluid.layers.fc(x, 3, act="relu"), 3, act="relu")
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(hidden))
    single, pairs = fluid.contrib.op_freq_statistic(main)
    counts, adjacent = dict(single), dict(pairs)
    assert counts["mul"] == counts["relu"] == 2 and counts["mean"] == 1
    assert "sgd" not in counts, "it writes parameters alone"
    assert single == sorted(single, key=lambda pair: -pair[1])
    assert adjacent["mul->elementwise_add"] == 2
    assert adjacent["elementwise_add->relu"] == 2
    assert adjacent["relu->mul"] == 1
    with pytest.raises(TypeError):
        fluid.contrib.op_freq_statistic("main")


def test_installation_is_checked(capsys):
    fluid.install_check.run_check()
    assert "installed successfully!" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["unused", "nobody"])
def test_inference_model_is_not_fed_what_it_does_not_need(tmp_path, name):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        fluid.data("unused", [None, 2])
        prediction = fluid.layers.fc(fluid.data("x", [None, 2]), 2)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor()
        exe.run(startup)
        with pytest.raises(ValueError, match=name):
            fluid.io.save_inference_model(str(tmp_path), ["x", name], [prediction], exe, main)
    assert not list(tmp_path.iterdir())


def test_executor_runs_a_pruned_program():
    main, made = surface_cases._network(fluid)
    pruned = main._prune_with_input([made["hidden"].name], [made["p"]])
    rows = {made["hidden"].name: np.ones((2, 3), "float32")}
    with fluid.scope_guard(fluid.Scope()):
        for param in main.all_parameters():
            value = np.full(param.shape, 0.5, "float32")
            fluid.global_scope().var(param.name).get_tensor().set(value)
        (found,) = fluid.Executor().run(pruned, feed=rows, fetch_list=[made["p"].name])
    np.testing.assert_allclose(found, np.full((2, 2), 0.5))
