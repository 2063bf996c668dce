"""``python -m tests.benchmarks.model``: the model of docs/scaling.md against measurements.

Perceptrons train with Adam on one to eight replicas of this process, in turns; every replica gets
as many rows as the others. The constants of the model are fitted to some points; what the others
should take is compared with what they took. With ``--cores 1`` one thread does everything, and its
processor time counts, which other programs hardly change.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import dpexec as fluid
from dpexec.engine.core.places import available_cpus
from tests.benchmarks.driver import alone

WIDTHS = (64, 256, 1024)
INPUTS, CLASSES = 256, 10
IN_CACHE = 2**16
"""Parameters that a core's cache holds, with moments and gradients: passing over them is free."""


@dataclass(frozen=True)
class Point:
    """What is measured.

    Args:
        replicas: how many.
        rows: of each.
        width: of both hidden layers.
    """

    replicas: int
    rows: int
    width: int

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        sizes = (INPUTS, self.width, self.width, CLASSES)
        return sum((a + 1) * b for a, b in itertools.pairwise(sizes))

    def terms(self, cores: int) -> list[float]:
        """What the constants of the model are multiplied by; see docs/scaling.md."""
        turns = math.ceil(self.replicas / cores)
        sums = (self.replicas - 1) / min(self.replicas, cores)
        beyond = max(0, self.parameters - IN_CACHE)
        return [1.0, turns, turns * self.rows * self.parameters, (turns + sums) * beyond]


NAMES = ("step", "replica", "row and parameter", "pass and parameter")
FITTED = [Point(1, rows, width) for rows in (32, 128) for width in WIDTHS] + [
    Point(replicas, 32, width) for replicas in (2, 8) for width in (64, 1024)
]
CHECKED = [
    *(Point(2, rows, 256) for rows in (32, 128)),
    *(Point(4, 32, width) for width in WIDTHS),
    Point(2, 128, 1024),
    Point(8, 32, 256),
]


def trainer(point: Point, threads: int) -> Callable[[], Any]:
    """A program on its own variables; calling it makes a step."""
    execution = fluid.ExecutionStrategy()
    execution.num_threads = threads
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        x = fluid.data("x", [None, INPUTS], "float32")
        label = fluid.data("y", [None, 1], "int64")
        hidden = fluid.layers.fc(x, point.width, act="relu")
        hidden = fluid.layers.fc(hidden, point.width, act="relu")
        found = fluid.layers.fc(hidden, CLASSES, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(found, label))
        fluid.optimizer.Adam(1e-3).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
    program = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, exec_strategy=execution, places=fluid.cpu_places(point.replicas)
    )
    rng = np.random.default_rng(1)
    rows = point.replicas * point.rows
    feed = {
        "x": rng.random((rows, INPUTS), dtype=np.float32) - 0.5,
        "y": rng.integers(0, CLASSES, (rows, 1)),
    }
    return lambda: exe.run(program, feed=feed, fetch_list=[loss], scope=scope)


def measure(points: list[Point], cores: int, turns: int, seconds: float) -> list[float]:
    """Seconds of a step of each: of the fastest turn, as other programs only make it longer."""
    steps = [trainer(point, cores) for point in points]
    clock = time.process_time if cores == 1 else time.perf_counter
    counts = []
    for step in steps:
        for _ in range(3):
            step()
        counts.append(max(3, int(seconds / timed(step, 3, clock))))
    found: list[list[float]] = [[] for _ in points]
    for _ in range(turns):
        for step, count, times in zip(steps, counts, found, strict=True):
            timed(step, max(2, count // 10), clock)
            times.append(timed(step, count, clock))
    return [min(times) for times in found]


def timed(step: Callable[[], Any], count: int, clock: Callable[[], float]) -> float:
    """Seconds of one of some steps."""
    start = clock()
    for _ in range(count):
        step()
    return (clock() - start) / count


def fitted(times: dict[Point, float], cores: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The constants that make relative errors small."""
    points = [point for point in FITTED if point in times]
    terms = np.array([[term / times[p] for term in p.terms(cores)] for p in points])
    scale = np.abs(terms).max(axis=0)
    found = np.linalg.lstsq(terms / scale, np.ones(len(points)), rcond=None)[0] / scale
    return np.asarray(found)


def main() -> None:
    """Measure, fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a turn of a point")
    parser.add_argument("--cores", type=int, default=available_cpus(), help="1: processor time")
    options = parser.parse_args()
    cores, points = options.cores, FITTED + CHECKED
    with alone():
        found = measure(points, cores, options.turns, options.seconds)
    times = dict(zip(points, found, strict=True))
    constants = fitted(times, cores)
    for name, constant in zip(NAMES, constants, strict=True):
        print(f"{name:>20} {constant * 1e6:.3g} us")
    print(f"{'replicas':>9}{'rows':>6}{'parameters':>12}{'model ms':>10}{'ms':>8}{'off':>7}")
    for point in points:
        expected, took = float(np.dot(constants, point.terms(cores))), times[point]
        print(
            f"{point.replicas:9}{point.rows:6}{point.parameters:12,}{expected * 1e3:10.3f}"
            f"{took * 1e3:8.3f}{expected / took - 1:+7.0%}{'' if point in CHECKED else '  fitted'}"
        )


if __name__ == "__main__":
    main()
