"""Recomputation adds Paddle's operators, changes no bit, and lowers the peak of memory."""

import gc
import gzip
import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import dpexec as fluid
from tests.engine.run.nets import AllReduce, Net, Reduce, assert_same_bits, train
from tests.fixtures import describe, recompute_programs

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = json.loads((FIXTURES / "recompute.json").read_text())
MODES = ["AllReduce", "Reduce"]
layers = fluid.layers


def recompute(checkpoints, optimizer=None):
    found = fluid.optimizer.RecomputeOptimizer(optimizer or fluid.optimizer.SGD(0.1))
    found._set_checkpoints(checkpoints)
    return found


def backward_types():
    ops = fluid.default_main_program().global_block().ops
    return [op.type for op in ops if op.role == 1]


# ---- programs and values of the real Paddle


@pytest.mark.parametrize("name", recompute_programs.CASES)
def test_operators_are_the_recorded_ones(name):
    main, _, _ = recompute_programs.build(name, fluid)
    ops = describe.program_record(main)["ops"]
    # the original also stores batch_norm's statistics again, which advances them twice a step
    ops = [re.sub(r"(batch_norm_\d\.w_[12])\.subprog_\d", r"\1", op) for op in ops]
    assert ops == RECORDED[name]["ops"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", sorted(set(recompute_programs.CASES) - {*recompute_programs.RANDOM})
)
def test_training_gives_recorded_losses_and_state(name, mode):
    losses, state = recompute_programs.train(name, fluid, 2, mode)
    np.testing.assert_allclose(losses, RECORDED[name]["losses"], rtol=1e-5)
    for variable, value in RECORDED[name]["state"].items():
        if not re.fullmatch(r"batch_norm_\d\.w_[12]", variable):
            np.testing.assert_allclose(
                state[variable], value, rtol=1e-4, atol=5e-6, err_msg=variable
            )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", sorted(set(recompute_programs.CASES) - {*recompute_programs.RANDOM})
)
def test_programs_that_the_original_wrote_train_on_two_replicas(name, mode):
    with np.load(FIXTURES / "recompute_programs.npz") as written:
        main, startup = (
            fluid.Program.parse_from_string(gzip.decompress(written[f"{name}/{part}"].tobytes()))
            for part in ("main", "startup")
        )
    built, _, _ = recompute_programs.build(name, fluid)
    shapes = {param.name: param.shape for param in built.all_parameters()}
    losses, state = recompute_programs.train_programs(
        fluid, main, startup, RECORDED[name]["loss"], shapes, 2, mode
    )
    np.testing.assert_allclose(losses, RECORDED[name]["losses"], rtol=1e-5)
    for parameter in shapes:
        if not re.fullmatch(r"batch_norm_\d\.w_[12]", parameter):
            np.testing.assert_allclose(
                state[parameter], RECORDED[name]["state"][parameter], rtol=1e-4, atol=5e-6
            )


# ---- the same numbers as without


@pytest.mark.parametrize(
    ("devices", "mode"), [(0, ""), (1, "AllReduce"), (3, "AllReduce"), (2, "Reduce")]
)
@pytest.mark.parametrize("name", sorted(set(recompute_programs.CASES) - {"dropout"}))
def test_bits_are_those_of_training_without_recomputation(name, devices, mode):
    mode = mode or "AllReduce"
    losses, state = recompute_programs.train(name, fluid, devices, mode)
    plain_losses, plain_state = recompute_programs.train(
        name, fluid, devices, mode, recompute=False
    )
    np.testing.assert_array_equal(losses, plain_losses)
    for variable, value in plain_state.items():
        np.testing.assert_array_equal(state[variable], value, err_msg=variable)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("devices", [2, 4])
def test_dropped_devices_equal_one_device(devices, mode):
    one, many = (
        recompute_programs.train("seeded_dropout", fluid, n, mode)[1] for n in (1, devices)
    )
    for variable, value in one.items():
        np.testing.assert_allclose(many[variable], value, rtol=1e-4, atol=1e-6, err_msg=variable)


@pytest.mark.parametrize("name", ["dropout", "seeded_dropout"])
def test_recomputed_masks_are_those_of_the_forward_pass(name):
    main, startup, loss = recompute_programs.build(name, fluid)
    feed = {"x": np.ones((64, 4), "float32"), "y": np.ones((64, 1), "int64")}
    masks = [
        "dropout_0.tmp_1",
        "dropout_0.tmp_1.subprog_1",
        "dropout_1.tmp_1",
        "dropout_1.tmp_1.subprog_0",
    ]
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        for program in (main, fluid.CompiledProgram(main).with_data_parallel(loss.name)):
            first, again, second, second_again = executor.run(program, feed, masks)
            np.testing.assert_array_equal(first, again)
            np.testing.assert_array_equal(second, second_again)
            assert (first != second).any()
            assert (executor.run(program, feed, masks)[0] != first).any()


def test_cluster_recomputes_with_the_bits_of_threads():
    main, startup, loss = recompute_programs.build("seeded_dropout", fluid)
    for op in startup.global_block().ops:
        op._set_attr("seed", 5)
    net, rng = Net(main, startup, loss, None, None), np.random.RandomState(1)
    feeds = [
        {"x": rng.rand(8, 4).astype("float32"), "y": rng.randint(0, 3, (8, 1))} for _ in range(3)
    ]
    with Client(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as client:
        found = train(net, feeds, 2, AllReduce, scheduler=client)
    assert_same_bits(found, train(net, feeds, 2, AllReduce))


def test_recomputation_in_tasks_of_single_operators_gives_the_same_bits():
    losses = []
    for granularity in ("segment", "op"):
        main, startup, loss = recompute_programs.build("residual", fluid)
        strategy = fluid.BuildStrategy()
        strategy.task_granularity = granularity
        feed = {"x": np.eye(4, dtype="float32"), "y": np.ones((4, 1), "int64")}
        with fluid.scope_guard(fluid.Scope()):
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(startup)
            for param in main.all_parameters():
                start = np.linspace(-1, 1, np.prod(param.shape), dtype="float32")
                fluid.global_scope().find_var(param.name).get_tensor().set(
                    start.reshape(param.shape)
                )
            compiled = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, strategy, places=[fluid.CPUPlace()] * 2
            )
            losses.append([executor.run(compiled, feed, [loss])[0] for _ in range(3)])
    np.testing.assert_array_equal(*losses)


# ---- memory


def peak_bytes(checkpoint_every, devices, mode, depth=25, rows=512, width=64):
    """Memory that one training step allocates, at its peak; devices one after another."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        hidden, found = fluid.data("x", [None, width]), []
        for _ in range(depth):
            hidden = layers.fc(hidden, width, act="tanh")
            found.append(hidden)
        loss = layers.mean(hidden)
        optimizer = fluid.optimizer.SGD(0.1)
        if checkpoint_every:
            optimizer = recompute(found[checkpoint_every - 1 :: checkpoint_every], optimizer)
        optimizer.minimize(loss)
    strategy, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    strategy.reduce_strategy = getattr(fluid.BuildStrategy.ReduceStrategy, mode)
    execution.scheduler = "sync"
    feed = {"x": np.ones((rows, width), "float32")}
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, strategy, execution, places=[fluid.CPUPlace()] * devices
        )
        executor.run(compiled, feed, [loss])
        gc.collect()
        tracemalloc.start()
        try:
            executor.run(compiled, feed, [loss])
            # code works in what an earlier run allocated
            kept = compiled._engine.bindings.memory.nbytes
            return kept + tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(("devices", "mode"), [(1, "AllReduce"), (2, "AllReduce"), (2, "Reduce")])
def test_peak_memory_goes_down(devices, mode):
    """25 layers of 2 activations each; with a checkpoint per 5 layers, 5 + 2 * 5 of them."""
    plain, best = (peak_bytes(every, devices, mode) for every in (0, 5))
    assert best < 0.6 * plain
    assert peak_bytes(1, devices, mode) > best


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_activations_go_when_gradients_are_aggregated_in_several_buckets(mode):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        hidden = fluid.data("x", [None, 1200])
        for _ in range(3):
            hidden = layers.fc(hidden, 1200, act="relu")
        loss = layers.mean(hidden)
        fluid.optimizer.SGD(0.1).minimize(loss)
    net = Net(main, startup, loss, None, None)
    feeds = [{"x": np.ones((4, 1200), "float32")}]
    run = train(net, feeds, 2, mode, num_iteration_per_drop_scope=10)
    assert sum(task.is_collective for task in run.compiled.plan.tasks) > 1
    for env in run.compiled._engine.runner.envs:
        left = [name for name in env if ".tmp_" in name]
        assert left == [loss.name]


# ---- arguments


def network(depth=3):
    hidden, found = fluid.data("x", [None, 4]), []
    for _ in range(depth):
        hidden = layers.fc(hidden, 4, act="tanh")
        found.append(hidden)
    return found, layers.mean(hidden)


def test_minimize_needs_checkpoints():
    _, loss = network()
    with pytest.raises(AssertionError, match="call _set_checkpoints first"):
        fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1)).minimize(loss)


def test_no_checkpoints_recompute_nothing():
    _, loss = network()
    recompute([]).minimize(loss)
    assert all(kind.endswith("_grad") for kind in backward_types())


def test_load_is_refused_as_in_fluid():
    with pytest.raises(NotImplementedError, match="load function is not supported"):
        recompute([]).load({})


def test_backward_and_apply_are_minimize():
    hidden, loss = network()
    optimizer = recompute([hidden[0], hidden[1]], fluid.optimizer.Momentum(0.1, 0.9))
    pairs = optimizer.backward(loss)
    assert [param.name for param, _ in pairs][:2] == ["fc_0.w_0", "fc_0.b_0"]
    updates = optimizer.apply_optimize(loss, None, pairs)
    assert [op.type for op in updates] == ["momentum"] * 6
    assert len(optimizer.get_opti_var_name_list()) == 6
    assert [kind for kind in backward_types() if not kind.endswith("_grad")] == [
        *("mul", "elementwise_add"),
        *("mul", "elementwise_add"),
    ]


def test_parameter_list_is_that_of_the_inner_optimizer():
    hidden, loss = network()
    inner = fluid.optimizer.SGD(0.1, parameter_list=["fc_0.w_0"])
    _, pairs = recompute(hidden[:2], inner).minimize(loss)
    assert [param.name for param, _ in pairs] == ["fc_0.w_0"]


def test_append_backward_takes_names():
    hidden, loss = network()
    fluid.backward.append_backward(loss, checkpoints=[hidden[0].name, hidden[1].name])
    assert "mul" in backward_types()


def test_checkpoint_that_the_loss_does_not_depend_on_is_said():
    hidden, loss = network()
    aside = layers.fc(hidden[0], 2)
    with pytest.warns(UserWarning, match=rf"checkpoints \['{aside.name}'\] have no effect"):
        recompute([hidden[0], hidden[1], aside]).minimize(loss)


def test_wrong_checkpoints_are_refused():
    _, loss = network()
    with pytest.raises(TypeError, match="member of checkpoints"):
        recompute([3]).minimize(loss)


def test_operator_with_a_block_of_its_own_is_refused():
    hidden, loss = network()
    block = fluid.default_main_program()._create_block()
    fluid.default_main_program()._rollback()
    hidden[1].op._set_attr("sub_block", block)
    with pytest.raises(NotImplementedError, match=r"recomputation: operator tanh has a block"):
        recompute(hidden[:1]).minimize(loss)


def test_clipped_errors_stay_clipped():
    hidden, loss = network()
    hidden[0].error_clip = fluid.clip.ErrorClipByValue(0.5)
    recompute(hidden[:2]).minimize(loss)
    assert "clip" in backward_types()


def test_test_program_has_nothing_recomputed():
    hidden, loss = network()
    recompute(hidden[:2]).minimize(loss)
    test = fluid.default_main_program().clone(for_test=True)
    assert all(op.role in (0, 256) for op in test.global_block().ops)
