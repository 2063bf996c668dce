"""``python -m tests.benchmarks.hosts``: sums between hosts, against what their links allow.

The hosts are network namespaces on this machine, behind links of their own. What a step takes is
what it takes to exchange gradients; the ways take turns, and the fastest run counts, as other work
on the machine only ever adds to a time. The bound is the time in which a link carries what each
host must send, and as much as it must get, to add up values of all: ``2 (n - 1) / n`` of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np

import dpexec as fluid
from dpexec.engine.cluster.client import task_runner
from dpexec.engine.compile.plans.bucket_size import Link
from tests.benchmarks.gangs import program
from tests.distributed.hosts import hosts

WAYS = {
    "gang": ("gang", Link(0.0, 1e9)),
    "tasks, at one worker": ("tasks", Link(1e3, 1e9)),
    "tasks, divided": ("tasks", Link(0.0, 1e9)),
}
"""How values are added up: modes of collectives, and links that make mode tasks choose a way."""

_LONG = 5.0  # seconds that a run may take before it counts by itself


class Variant:
    """A way to add up.

    Args:
        client: of the hosts' cluster.
        count: of hosts.
        nbytes: of gradients.
        steps: per run.
        way: one of ``WAYS``.
    """

    def __init__(self, client: Any, count: int, nbytes: int, steps: int, way: str) -> None:
        main, startup, self._loss = program(nbytes)
        self._scope, self._exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(self._scope):
            self._exe.run(startup)
        execution = fluid.ExecutionStrategy()
        execution.scheduler, execution.num_iteration_per_run = client, steps
        execution.collectives, link = WAYS[way]
        self._steps, side = steps, self._loss.block.var("x").shape[1]
        self._compiled = fluid.CompiledProgram(main).with_data_parallel(
            self._loss.name, exec_strategy=execution, places=[fluid.CPUPlace()] * count
        )
        self._feed = {"x": np.ones((count, side), "float32")}
        with mock.patch.object(task_runner, "link_between", return_value=link):
            self.seconds()

    def seconds(self) -> float:
        """What a step of a run takes."""
        began = time.perf_counter()
        with fluid.scope_guard(self._scope):
            self._exe.run(self._compiled, feed=self._feed, fetch_list=[self._loss])
        return (time.perf_counter() - began) / self._steps

    def close(self) -> None:
        """Free the workers; what was trained there need not come."""
        self._compiled._engine._cluster.close()


def bound(count: int, megabits: int, nbytes: int) -> float:
    """The seconds that links need for a sum of values of all hosts, which all get."""
    return 2 * (count - 1) / count * nbytes * 8 / (megabits * 1e6)


def compare(
    client: Any, count: int, nbytes: int, steps: int, runs: int, ways: Sequence[str]
) -> list[float]:
    """The seconds of a step, by way."""
    variants = [Variant(client, count, nbytes, steps, way) for way in ways]
    times: list[list[float]] = [[] for _ in ways]
    while len(times[0]) < runs:
        for variant, found in zip(variants, times, strict=True):
            found.append(variant.seconds())
        if times[0][0] * steps > _LONG:
            break
    for variant in variants:
        variant.close()
    return list(map(min, times))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[3, 4])
    parser.add_argument("--megabits", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--megabytes", type=float, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to go through a link")
    parser.add_argument("--steps", type=int, default=5, help="per run")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    given = parser.parse_args()
    names = ["hosts", "Mbit/s", "MB", "bound, ms", *(f"{way}, ms a step" for way in given.ways)]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for count in given.hosts:
        for megabits in given.megabits:
            with hosts(count, megabits, given.delay) as (client, _):
                for size in given.megabytes:
                    nbytes = round(size * 1e6)
                    args = client, count, nbytes, given.steps, given.runs, given.ways
                    least = bound(count, megabits, nbytes)
                    found = [f"{1e3 * s:.0f} ({s / least:.2f})" for s in compare(*args)]
                    cells = [count, megabits, f"{size:g}", f"{1e3 * least:.0f}", *found]
                    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
