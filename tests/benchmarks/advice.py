"""Measures how often advice and gates are wrong: ``python -m tests.benchmarks.advice``.

The same runs are compared with each other: nothing changed, so that a gate that fails, or a setting
that `viz.tune` calls faster, is a false alarm.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import numpy as np
from dpexec.viz.tuning.search import Search
from dpexec.viz.tuning.settings import Setting
from dpexec.viz.tuning.trial import Subject

import dpexec as fluid
from dpexec import viz
from tests.benchmarks.tracing import BATCH, NETS
from tests.benchmarks.whatif import record

LIMIT = 0.03


def false_alarms(net: str, runs: int, steps: int) -> int:
    """Gates of neighbouring runs of one program that fail."""
    traces = [record(net, 2, "threads", steps)[0] for _ in range(runs + 1)]
    return sum(not viz.compare(a, b).gate(LIMIT).passed for a, b in pairwise(traces))


def false_advice(net: str, runs: int) -> tuple[int, float, float]:
    """Settings that change nothing and are called faster; the least and the largest ratio."""
    build, shape = NETS[net]
    rng = np.random.default_rng(1)
    x = rng.random((BATCH, *shape), dtype=np.float32) - 0.5
    feed = {"x": x, "y": rng.integers(0, 10, (BATCH, 1))}
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        loss = build()
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
        program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
            loss.name, places=fluid.cpu_places(2)
        )
        search = Search(Subject.of(program, feed, None, None, False), 0.0, False)
        search._begin()
        found = [search._final(Setting()) for _ in range(runs)]
    ratios = [one.ratio.median for one in found]
    return sum(one.is_better for one in found), min(ratios), max(ratios)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60, help="of a run")
    options = parser.parse_args()
    for net in NETS:
        wrong = false_alarms(net, options.runs, options.steps)
        print(f"{net}: a gate of {LIMIT:.0%} failed for {wrong} of {options.runs} equal runs")
        wrong, low, high = false_advice(net, options.runs)
        print(
            f"{net}: {wrong} of {options.runs} equal settings were called faster "
            f"(ratios {low:.3f} to {high:.3f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
