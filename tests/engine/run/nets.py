"""Small programs and a way to train them, for the tests of the runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dpexec as fluid

Reduce = fluid.BuildStrategy.ReduceStrategy.Reduce
AllReduce = fluid.BuildStrategy.ReduceStrategy.AllReduce


@dataclass
class Net:
    """A program with its loss."""

    main: Any
    startup: Any
    loss: Any
    test: Any
    prediction: Any


def classifier(
    optimizer: Any = None,
    sizes: tuple[int, ...] = (8, 16, 3),
    dropout: float = 0.0,
    batch_norm: bool = False,
    seed: int = 5,
) -> Net:
    """A multi-layer perceptron with softmax cross entropy."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = seed
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, sizes[0]], "float32")
        y = fluid.data("y", [None, 1], "int64")
        hidden = x
        for size in sizes[1:-1]:
            hidden = fluid.layers.fc(hidden, size, act="relu")
            if batch_norm:
                hidden = fluid.layers.batch_norm(hidden)
            if dropout:
                hidden = fluid.layers.dropout(hidden, dropout)
        prediction = fluid.layers.fc(hidden, sizes[-1], act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        test = main.clone(for_test=True)
        (optimizer or fluid.optimizer.SGD(0.1)).minimize(loss)
    return Net(main, startup, loss, test, prediction)


def words(optimizer: Any = None, vocabulary: int = 12, clip: Any = None) -> Net:
    """A sparse embedding, averaged words, and a classifier."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 4], "int64")
        y = fluid.data("y", [None, 1], "int64")
        table = fluid.embedding(x, [vocabulary, 5], is_sparse=True)
        prediction = fluid.layers.fc(fluid.layers.reduce_mean(table, dim=1), 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        test = main.clone(for_test=True)
        (optimizer or fluid.optimizer.SGD(0.1, grad_clip=clip)).minimize(loss)
    return Net(main, startup, loss, test, prediction)


def sequences() -> Net:
    """A product for every word of a sequence, and what is greatest in it."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1], "int64", lod_level=1)
        y = fluid.data("y", [None, 1], "int64")
        hidden = fluid.layers.fc(fluid.embedding(x, [12, 8]), 8, act="tanh")
        prediction = fluid.layers.fc(fluid.layers.sequence_pool(hidden, "max"), 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return Net(main, startup, loss, None, prediction)


def sequence_batches(sizes: Sequence[int]) -> list[Any]:
    """Six sequences each, with so many words more than sequences."""
    rng = np.random.RandomState(4)
    found = []
    for total in sizes:
        ends = np.sort(rng.randint(0, total, 5)) + np.arange(1, 6)
        lengths = np.diff([0, *ends, total + 6])
        numbers = rng.randint(0, 12, (total + 6, 1)).astype("int64")
        x = fluid.create_lod_tensor(numbers, [lengths.tolist()], fluid.CPUPlace())
        found.append({"x": x, "y": rng.randint(0, 3, (6, 1))})
    return found


def batches(steps: int, rows: int = 12, features: int = 8, classes: int = 3) -> list[Any]:
    """Deterministic dense batches."""
    rng = np.random.RandomState(11)
    return [
        {
            "x": rng.randn(rows, features).astype("float32"),
            "y": rng.randint(0, classes, (rows, 1)).astype("int64"),
        }
        for _ in range(steps)
    ]


def word_batches(steps: int, rows: int = 12, vocabulary: int = 12) -> list[Any]:
    """Deterministic batches of word ids."""
    rng = np.random.RandomState(12)
    return [
        {
            "x": rng.randint(0, vocabulary, (rows, 4)).astype("int64"),
            "y": rng.randint(0, 3, (rows, 1)).astype("int64"),
        }
        for _ in range(steps)
    ]


def strategies(mode: Any = AllReduce, **options: Any) -> tuple[Any, Any]:
    """Build and execution strategy with some fields set."""
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    build.reduce_strategy = mode
    execution.scheduler = "threads"  # also while a test has a client
    for name, value in options.items():
        setattr(build if name in type(build).fields() else execution, name, value)
    return build, execution


@contextlib.contextmanager
def flags(**values: Any) -> Iterator[None]:
    """Some of fluid's flags (without ``FLAGS_``), set for a while."""
    named = {f"FLAGS_{name}": value for name, value in values.items()}
    before = fluid.get_flags(list(named))
    fluid.set_flags(named)
    try:
        yield
    finally:
        fluid.set_flags(before)


@dataclass
class Run:
    """What training left behind."""

    losses: list[Any]
    state: dict[str, np.ndarray]
    compiled: Any
    scope: Any
    fetched: Sequence[Sequence[Any]] = ()


def train(
    net: Net,
    feeds: list[Any],
    devices: int = 1,
    mode: Any = AllReduce,
    place: Any = None,
    fetched: Sequence[Any] = (),
    **options: Any,
) -> Run:
    """Train from the start on some devices, by default CPUs, in a scope of its own.

    Variables that are ``fetched`` are so in every step, beside the loss.
    """
    scope, place = fluid.Scope(), place or fluid.CPUPlace()
    with fluid.scope_guard(scope):
        exe = fluid.Executor(place)
        exe.run(net.startup)
        build, execution = strategies(mode, **options)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, build, execution, places=[place] * devices
        )
        names = [net.loss, *fetched]
        steps = [exe.run(compiled, feed=feed, fetch_list=names) for feed in feeds]
        losses, *others = zip(*steps, strict=True) if steps else ((),)
        return Run(list(losses), persistables(net.main, scope), compiled, scope, others)


def persistables(program: Any, scope: Any) -> dict[str, np.ndarray]:
    """Copies of all persistable variables that have a value."""
    found = {}
    for var in program.list_vars():
        holder = scope.find_var(var.name)
        if var.persistable and holder is not None:
            found[var.name] = np.array(holder.get_tensor())
    return found


def assert_same_bits(one: Run, other: Run) -> None:
    """Equal losses and equal persistable variables, bit by bit."""
    for a, b in zip(one.losses, other.losses, strict=True):
        assert np.array_equal(a, b), f"losses {a} and {b}"
    for one_by_one in zip(one.fetched, other.fetched, strict=True):
        for step, (a, b) in enumerate(zip(*one_by_one, strict=True)):
            assert np.array_equal(a, b), f"fetches of step {step}: {a} and {b}"
    assert one.state.keys() == other.state.keys()
    for name, value in one.state.items():
        assert np.array_equal(value, other.state[name]), f"{name} differs"
