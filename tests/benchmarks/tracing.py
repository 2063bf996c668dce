"""The cost of recording: ``python tests/benchmarks/tracing.py``.

One executor trains; in every other block of 20 steps its recorder is on. So both kinds of steps
share code, memory and moments of other load. Printed are the median step without recording, the
median of the differences within pairs of blocks, with the interval that holds it in 19 of 20 cases,
and the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import dpexec as fluid
from dpexec.engine.dispatch.traces import trace_of

BATCH = 64
WARM_UP = 50
BLOCK = 20


def mlp() -> fluid.Variable:
    """The loss of W1: an MLP 784-200-200-10."""
    x = fluid.data("x", [None, 784])
    for _ in range(2):
        x = fluid.layers.fc(x, 200, act="relu")
    return _trained(x, fluid.optimizer.Adam(1e-3))


def lenet() -> fluid.Variable:
    """The loss of W2: LeNet."""
    x = fluid.data("x", [None, 1, 28, 28])
    for filters in (20, 50):
        x = fluid.nets.simple_img_conv_pool(x, filters, 5, 2, 2, act="relu")
    return _trained(x, fluid.optimizer.Momentum(0.01, 0.9))


def _trained(x: fluid.Variable, optimizer: Any) -> fluid.Variable:
    label = fluid.data("y", [None, 1], "int64")
    digit = fluid.layers.fc(x, 10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(digit, label))
    optimizer.minimize(loss)
    return loss


NETS = {"W1": (mlp, (784,)), "W2": (lenet, (1, 28, 28))}


def pairs(name: str, number: int, devices: int) -> list[tuple[float, float]]:
    """Median milliseconds of blocks without and with recording; each comes first in turn."""
    build, shape = NETS[name]
    rng = np.random.default_rng(1)
    feed = {
        "x": rng.random((BATCH, *shape), dtype=np.float32) - 0.5,
        "y": rng.integers(0, 10, (BATCH, 1)),
    }
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        loss = build()
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
        execution = fluid.ExecutionStrategy()
        execution.trace = True
        program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
            loss.name, exec_strategy=execution, places=fluid.cpu_places(devices)
        )
        exe = fluid.Executor(fluid.CPUPlace())

        def step() -> float:
            start = time.perf_counter()
            exe.run(program, feed=feed, fetch_list=[loss])
            return (time.perf_counter() - start) * 1e3

        for _ in range(WARM_UP):
            step()
        engine = program._engine
        recorders, found = engine.observers.recorders, []
        for index in range(number):
            took = {}
            for on in (index % 2 == 0, index % 2 == 1):
                engine.observers.recorders = recorders if on else ()
                step()
                took[on] = statistics.median(step() for _ in range(BLOCK))
            found.append((took[False], took[True]))
        print(f"{name}: {len(trace_of(engine, engine.recorder))} events are kept", end="; ")
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("nets", nargs="*", default=list(NETS), help="W1, W2")
    parser.add_argument("--pairs", type=int, default=200, help="of blocks")
    parser.add_argument("--devices", type=int, default=2, help="replicas")
    options = parser.parse_args()
    for name in options.nets:
        found = pairs(name, options.pairs, options.devices)
        without = statistics.median(off for off, _ in found)
        costs = sorted(on - off for off, on in found)
        middle, spread = len(costs) / 2, 0.98 * len(costs) ** 0.5
        low, cost, high = (
            costs[max(0, min(len(costs) - 1, int(middle + shift)))]
            for shift in (-spread, 0, spread)
        )
        print(
            f"a step takes {without:.3f} ms, recording {cost * 1e3:+.1f} us "
            f"({low * 1e3:+.1f} to {high * 1e3:+.1f}), {cost / without:+.2%}"
        )


if __name__ == "__main__":
    main()
