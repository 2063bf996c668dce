"""``python -m tests.benchmarks.sizes``: the cost of batches with different sizes.

Two copies of a word2vec program take steps in turn: batches of one always have the same size, those
of the other a new one every time, from half as much to half as much again; on average, both have as
many rows. Before the first step that counts each made three. Printed are medians over several turns
with new programs: how much longer the changing batches took, all steps together.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dpexec as fluid
from tests.benchmarks.driver import alone
from tests.benchmarks.peers.workloads import WORKLOADS

ENDS = (100, 300, 1000)
FIRST = 3  # steps that do not count
Batch = dict[str, np.ndarray[Any, Any]]


def word2vec() -> Any:
    """The loss of workload W4, which every word of the context is looked up for."""
    spec = WORKLOADS["W4"]
    table = fluid.ParamAttr(name="table")
    x = fluid.data("x", [None, spec["context"]], "int64")
    label = fluid.data("y", [None, 1], "int64")
    words = [
        fluid.layers.embedding(
            fluid.layers.slice(x, axes=[1], starts=[i], ends=[i + 1]),
            (spec["words"], spec["width"]),
            is_sparse=True,
            param_attr=table,
        )
        for i in range(spec["context"])
    ]
    hidden = fluid.layers.fc(fluid.layers.concat(words, axis=1), spec["hidden"], act="sigmoid")
    found = fluid.layers.fc(hidden, spec["classes"], act="softmax")
    return fluid.layers.mean(fluid.layers.cross_entropy(found, label))


def trainer(devices: int) -> Callable[[Batch], float]:
    """A new program on its own variables; it takes a batch and returns the seconds of its step."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        loss = word2vec()
        fluid.optimizer.SGD(WORKLOADS["W4"]["rate"]).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
    program = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, places=fluid.cpu_places(devices)
    )

    def step(batch: Batch) -> float:
        start = time.perf_counter()
        exe.run(program, feed=batch, fetch_list=[loss], scope=scope)
        return time.perf_counter() - start

    return step


def batch(rng: np.random.Generator, rows: int) -> Batch:
    """A batch of some rows."""
    spec = WORKLOADS["W4"]
    return {
        "x": rng.integers(0, spec["words"], (rows, spec["context"])),
        "y": rng.integers(0, spec["classes"], (rows, 1)),
    }


def turn(rng: np.random.Generator, rows: int, steps: int, devices: int) -> dict[str, list[float]]:
    """What every step took, of both programs."""
    others = np.resize(rng.permutation(np.arange(rows // 2, rows + rows // 2 + 1)), steps)
    train = {kind: trainer(devices) for kind in ("constant", "changing")}
    for step in train.values():
        for _ in range(FIRST):
            step(batch(rng, rows))
    took: dict[str, list[float]] = {kind: [] for kind in train}
    for other in others.tolist():
        batches = {"constant": batch(rng, rows), "changing": batch(rng, other)}
        for kind, step in train.items():
            took[kind].append(step(batches[kind]))
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=WORKLOADS["W4"]["batch"], help="mean size")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=ENDS[-1])
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    with alone():
        turns = [
            turn(rng, options.rows, options.steps, options.devices) for _ in range(options.turns)
        ]
    for end in (end for end in ENDS if end <= options.steps):
        sums = [{kind: sum(t[kind][:end]) / end * 1e3 for kind in t} for t in turns]
        print(
            f"first {end:4} steps: "
            f"constant {statistics.median(s['constant'] for s in sums):.3f} ms, "
            f"changing {statistics.median(s['changing'] for s in sums):.3f} ms, "
            f"ratio {statistics.median(s['changing'] / s['constant'] for s in sums):.3f}"
        )


if __name__ == "__main__":
    main()
