"""``python -m tests.benchmarks.branches``: what a second core does for a net with two branches.

Two towers of four layers, whose results are added up, train with SGD: on one thread; on one replica
and two threads, which share the branches; and on two replicas. Printed are milliseconds per step:
medians of what a clock shows, and the processor time of the thread that worked most. That is what a
step takes where each thread has a core of its own, and others hardly change it.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np

import dpexec as fluid
from tests.benchmarks.driver import alone

WAYS = {"one thread": (1, 1), "branches": (1, 2), "two replicas": (2, 2)}
"""Replicas and threads."""


def towers(width: int) -> fluid.Variable:
    """The loss of two towers."""
    x = fluid.data("x", [None, width])
    ends = []
    for _ in range(2):
        hidden = x
        for _ in range(4):
            hidden = fluid.layers.fc(hidden, width, act="relu")
        ends.append(hidden)
    return fluid.layers.mean(fluid.layers.elementwise_add(*ends))


def trainer(width: int, rows: int, replicas: int, threads: int) -> Callable[[], None]:
    """What makes a step of a new program."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        loss = towers(width)
        fluid.optimizer.SGD(0.01).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
    execution = fluid.ExecutionStrategy()
    execution.num_threads = threads
    program = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, exec_strategy=execution, places=fluid.cpu_places(replicas)
    )
    x = np.random.default_rng(1).normal(size=(rows, width)).astype("float32")
    return lambda: exe.run(program, feed={"x": x}, fetch_list=[loss], scope=scope)


def took(step: Callable[[], None]) -> tuple[float, float]:
    """Milliseconds of a step: by the clock, and of the thread that worked most."""
    before, start = processor_times(), time.perf_counter()
    step()
    passed = time.perf_counter() - start
    used = (end - before.get(thread, 0.0) for thread, end in processor_times().items())
    return passed * 1e3, max(used) * 1e3


def processor_times() -> dict[int, float]:
    """The seconds that every thread has worked so far."""
    idents = [thread.ident for thread in threading.enumerate() if thread.ident is not None]
    return {i: time.clock_gettime(time.pthread_getcpuclockid(i)) for i in idents}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--width", type=int, default=512, help="of a layer")
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    print(
        f"{'rows':>6}" + "".join(f"{way + suffix:>22}" for way in WAYS for suffix in ("", ", most"))
    )
    with alone():
        for rows in options.rows:
            steps = {way: trainer(options.width, rows, *given) for way, given in WAYS.items()}
            for step in steps.values():
                for _ in range(3):
                    step()
            found = [{way: took(step) for way, step in steps.items()} for _ in range(options.steps)]
            middles = (
                statistics.median(turn[way][which] for turn in found)
                for way in WAYS
                for which in (0, 1)
            )
            print(f"{rows:6}" + "".join(f"{middle:22.2f}" for middle in middles), flush=True)


if __name__ == "__main__":
    main()
