"""A collective that is declared in this file runs on threads, workers, trainers and GPUs."""

import ast
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec import viz
from dpexec.dashboard.boxes import boxes
from dpexec.engine.graph.kinds import ALL_REDUCE, COMPUTE, KINDS, MODES, REDUCE
from dpexec.extend import Kind, Reduction
from tests.distributed.clusters import workers
from tests.engine.run.nets import Net, strategies, words
from tests.engine.run.trainers.conftest import endpoints  # noqa: F401  (a fixture)
from tests.engine.run.trainers.pair import Trainer, rows_of, together, two
from tests.fakes.cupy import install

ROOT = Path(fluid.__file__).parents[1]
LARGEST = Reduction("max", "largest value", "maximum", "NCCL_MAX")
MAX_REDUCE = Kind("max_reduce", "combines", "all", "all", of_gradients=True, reduction=LARGEST)


class TakeLargest:
    """Devices update with the largest of their gradients, not with the sum."""

    name = "take_largest"

    def apply(self, graph):
        """Let gradients meet by the kind that is declared here."""
        for node in graph.ops:
            if node.does.of_gradients:
                node.does, node.name = MAX_REDUCE, MAX_REDUCE.name
        return True


def net():
    """Two products: the gradient of a weight is the mean of its inputs, times the share."""
    main, startup = fluid.Program(), fluid.Program()
    ones = fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0))
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, 4], "float32"), fluid.data("y", [None, 300], "float32")
        parts = [fluid.layers.fc(part, 1, param_attr=ones, bias_attr=False) for part in (x, y)]
        loss = fluid.layers.mean(fluid.layers.sum(parts))
        fluid.optimizer.SGD(1.0).minimize(loss)
    return Net(main, startup, loss, None, None)


def feeds(steps=2):
    """Small integers, so that every sum of them is exact."""
    rng = np.random.default_rng(3)
    sizes = {"x": (8, 4), "y": (8, 300)}
    return [
        {name: rng.integers(-9, 9, size).astype("float32") for name, size in sizes.items()}
        for _ in range(steps)
    ]


def expected(devices):
    """The weights after the steps."""
    found = {"fc_0.w_0": np.ones((4, 1)), "fc_1.w_0": np.ones((300, 1))}
    for feed in feeds():
        for (name, weight), array in zip(found.items(), feed.values(), strict=True):
            grads = [part.sum(0) / 8 for part in np.split(array, devices)]
            found[name] = weight - np.max(grads, axis=0)[:, None]
    return found


def train(program, batches, places, **options):
    """The program's variables after some steps, and the engine that made them."""
    scope = fluid.Scope()
    build, execution = strategies(**options)
    build.append_pass(TakeLargest())
    with fluid.scope_guard(scope):
        executor = fluid.Executor(places[0])
        executor.run(program.startup)
        compiled = fluid.CompiledProgram(program.main).with_data_parallel(
            program.loss.name, build, execution, places=places
        )
        for feed in batches:
            executor.run(compiled, feed, [program.loss])
        names = [var.name for var in program.main.all_parameters()]
        return {n: np.array(scope.find_var(n).get_tensor()) for n in names}, compiled._engine


def check(found, devices):
    """Compare with what NumPy makes of it."""
    for name, weight in expected(devices).items():
        np.testing.assert_array_equal(found[name], weight, err_msg=name)


@pytest.fixture(scope="module")
def client():
    """Two worker processes."""
    with workers(2) as found:
        yield found.client


@pytest.mark.parametrize("devices", [2, 4])
def test_threads(devices):
    found, engine = train(net(), feeds(), fluid.cpu_places(devices))
    check(found, devices)
    kinds = {node.kind for node in engine.graph.ops if node.is_collective}
    assert kinds == {"max_reduce"}
    described = engine.graph.to_json()
    assert {n["kind"] for n in described["nodes"] if n["role"] == "collective"} == kinds
    assert "max_reduce" in viz.draw(engine.graph).svg
    assert {box["label"] for box in boxes(engine.runner.binding)} >= {"max-reduce"}


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
@pytest.mark.parametrize("devices", [2, 4])
def test_workers(client, devices, collectives):
    places = fluid.cpu_places(devices)
    found, _ = train(net(), feeds(), places, scheduler=client, collectives=collectives)
    check(found, devices)


def test_trainers(endpoints):  # noqa: F811
    trainers = two(net(), endpoints, passes=[TakeLargest()])
    together(trainers, [[rows_of(feed, rank, 2) for feed in feeds()] for rank in (0, 1)])
    for trainer in trainers:
        assert trainer.error is None
        check(trainer.state(), 4)


def test_trainers_whose_kinds_differ_are_refused(endpoints):  # noqa: F811
    program, passes = net(), [[TakeLargest()], []]
    trainers = [Trainer(program, endpoints, rank, passes=passes[rank]) for rank in (0, 1)]
    for trainer in trainers:
        trainer.start()
    together(trainers, [[rows_of(feed, rank, 2) for feed in feeds()] for rank in (0, 1)])
    assert all("must have the same gradients" in str(trainer.error) for trainer in trainers)


def test_gpus(monkeypatch):
    cupy = install(monkeypatch, 2, nccl=True)
    found, _ = train(net(), feeds(), [fluid.CUDAPlace(0), fluid.CUDAPlace(1)])
    check(found, 2)
    assert {name for group in cupy.cuda.nccl.done for name in group} == {"allReduce"}


def test_sparse_values_can_only_be_added_up():
    ids = {"x": np.zeros((4, 4), "int64"), "y": np.zeros((4, 1), "int64")}
    with pytest.raises(fluid.core.EnforceNotMet, match=r"max_reduce .*embedding_0.w_0@GRAD"):
        train(words(), [ids], fluid.cpu_places(2))


@pytest.mark.parametrize("words", [("combine",), ("combines", "roots"), ("combines", "all", "one")])
def test_words_of_a_declaration_are_checked(words):
    with pytest.raises(ValueError, match=f"of the kind 'max_reduce' must be one of .*{words[-1]}"):
        Kind("max_reduce", *words)


def test_names_of_views():
    assert (ALL_REDUCE.text, ALL_REDUCE.title, REDUCE.title) == (
        "all-reduce",
        "AllReduce",
        "Reduce",
    )
    assert list(MODES) == ["all_reduce", "reduce"]


def _compared(tree):
    """Strings that are compared with something, alone or in a row of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for operand in (node.left, *node.comparators):
                for part in getattr(operand, "elts", [operand]):
                    if isinstance(part, ast.Constant):
                        yield node.lineno, part.value, ast.unparse(node)


def test_no_kind_is_asked_for_by_name():
    """Outside of the declarations; types of operators and actions of dask have such names, too."""
    names = KINDS.keys() - {COMPUTE.name}
    found = []
    for folder in ("dpexec/engine", "dpexec/dashboard", "viz"):
        for path in (ROOT / folder).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            if not any(f'"{name}"' in source for name in names):
                continue
            found += [
                f"{path.relative_to(ROOT)}:{line}: {text}"
                for line, value, text in _compared(ast.parse(source))
                if value in names and ".type " not in text
            ]
    assert found == []
