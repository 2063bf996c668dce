"""The errors of what-if predictions: ``python -m tests.benchmarks.whatif``.

Networks train on one device and on two, in turns, so that both kinds of runs share the moments of
other load; every device gets as many samples in both. From the trace of one device the step of two
is predicted, and the other way round; both are compared with what was measured. Printed are the
medians over the turns, with the share of a processor that the process got while it had work: below
1, others used the machine, and the predictions, which count on whole cores, say too little.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import dpexec as fluid
from dpexec import viz
from dpexec.engine.trace import Trace
from tests.benchmarks.tracing import NETS

BATCH = 128  # per device
MEMORY = 1e10  # bytes per second between devices that share a machine


def record(name: str, devices: int, scheduler: str, steps: int) -> tuple[Trace, float]:
    """A trace, and the processor time of its steps by the time that they took."""
    build, shape = NETS[name]
    rng = np.random.default_rng(1)
    rows = BATCH * devices
    feed = {
        "x": rng.random((rows, *shape), dtype=np.float32) - 0.5,
        "y": rng.integers(0, 10, (rows, 1)),
    }
    execution = fluid.ExecutionStrategy()
    execution.scheduler, execution.trace = scheduler, True
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        loss = build()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
            loss.name, exec_strategy=execution, places=fluid.cpu_places(devices)
        )
        exe.run(program, feed=feed, fetch_list=[loss])
        start = time.process_time(), time.perf_counter()
        for _ in range(steps):
            exe.run(program, feed=feed, fetch_list=[loss])
        used, took = time.process_time() - start[0], time.perf_counter() - start[1]
    return program.trace, used / took


def turn(name: str, scheduler: str, steps: int) -> dict[str, float]:
    """One run on a device, one on two, and how far predictions lie from them."""
    (one, share), (two, _) = (record(name, devices, scheduler, steps) for devices in (1, 2))
    real = {1: viz.simulate(one), 2: viz.simulate(two)}
    more: Any = viz.simulate(one, devices=2, bandwidth=MEMORY, cores=one.meta["cpus"])
    fewer = viz.simulate(two, devices=1)
    return {
        "step of 1": real[1].measured,
        "step of 2": real[2].measured,
        "2 from 1": more.prediction.step / real[2].measured - 1,
        "1 from 2": fewer.prediction.step / real[1].measured - 1,
        "replay": max(abs(found.error) for found in real.values()),
        "processor": share,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("nets", nargs="*", default=list(NETS), help="W1, W2")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--steps", type=int, default=30, help="of a run")
    options = parser.parse_args()
    for name in options.nets:
        for scheduler in ("sync", "threads"):
            turns = [turn(name, scheduler, options.steps) for _ in range(options.turns)]
            found = {key: statistics.median(t[key] for t in turns) for key in turns[0]}
            print(
                f"{name} {scheduler}: steps of {found['step of 1'] * 1e3:.2f} and "
                f"{found['step of 2'] * 1e3:.2f} ms; 2 devices from 1: {found['2 from 1']:+.0%}, "
                f"1 from 2: {found['1 from 2']:+.0%}; replay {found['replay']:.1%}; "
                f"{found['processor']:.0%} of a processor",
                flush=True,
            )


if __name__ == "__main__":
    main()
