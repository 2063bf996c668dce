"""``python -m tests.benchmarks.prediction``: what a second replica adds to prediction.

A perceptron and a convolutional net predict batches of always as many rows per replica: on one
replica, and on two, in turns. Printed are rows per second, medians over the turns, and by how much
two replicas make more of them: 1.6 times or more, where each has a core of its own. ``apart`` is
the same for two processes with a replica each, which have nothing in common: what the machine
allows, as cores share caches, memory, power, and with others time. ``cores`` is what two replicas
had of the processors while they worked; if that is not near 2, others used the machine. ``work`` is
the processor time of a row on two replicas, divided by that on one, which others hardly change: at
1, all that two replicas do is divided between them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import dpexec as fluid
from tests.benchmarks.driver import alone

REPLICAS = (1, 2)
SHAPES = {"perceptron": (784,), "convolutions": (1, 28, 28)}


def net(name: str) -> fluid.Variable:
    """The probabilities of ten classes."""
    hidden = fluid.data("x", [None, *SHAPES[name]], "float32")
    if name == "convolutions":
        for filters in (20, 50):
            hidden = fluid.nets.simple_img_conv_pool(hidden, filters, 5, 2, 2, act="relu")
    else:
        for _ in range(2):
            hidden = fluid.layers.fc(hidden, 512, act="relu")
    return fluid.layers.fc(hidden, 10, act="softmax")


def predictor(name: str, rows: int, replicas: int) -> Callable[[], None]:
    """What predicts a batch, ``rows`` for each replica."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        found = net(name)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
    program = fluid.CompiledProgram(main.clone(for_test=True)).with_data_parallel(
        places=fluid.cpu_places(replicas)
    )
    x = np.random.default_rng(1).random((rows * replicas, *SHAPES[name]), dtype=np.float32)

    def predict() -> None:
        exe.run(program, feed={"x": x}, fetch_list=[found], scope=scope)

    return predict


def rate(predict: Callable[[], None], seconds: float) -> tuple[float, float]:
    """Batches per second, and processors in use meanwhile."""
    batches = 0
    used, start = time.process_time(), time.perf_counter()
    while (took := time.perf_counter() - start) < seconds:
        predict()
        batches += 1
    return batches / took, (time.process_time() - used) / took


def serve(name: str, rows: int, line: Any) -> None:
    """Predict on one replica for as many seconds as come over a line, and answer how often."""
    predict = predictor(name, rows, 1)
    while (seconds := line.recv()) is not None:
        line.send(rate(predict, seconds)[0])


@contextmanager
def another(name: str, rows: int) -> Iterator[Any]:
    """The line to another process that predicts on one replica."""
    context = multiprocessing.get_context("spawn")
    line, far = context.Pipe()
    process = context.Process(target=serve, args=(name, rows, far))
    process.start()
    try:
        yield line
    finally:
        line.send(None)
        process.join()


def compare(name: str, rows: int, turns: int, seconds: float) -> str:
    """A line of the table."""
    predictors = {replicas: predictor(name, rows, replicas) for replicas in REPLICAS}
    found: list[dict[int, tuple[float, float]]] = []
    together: list[float] = []
    with another(name, rows) as line:
        for _ in range(turns + 1):
            found.append({n: rate(predict, seconds) for n, predict in predictors.items()})
            line.send(seconds)
            own = rate(predictors[1], seconds)[0]
            together.append((own + line.recv()) / found[-1][1][0])
    del found[0], together[0]  # they also compiled
    one, two = (statistics.median(turn[n][0] * n * rows for turn in found) for n in REPLICAS)
    ratio = statistics.median(2 * turn[2][0] / turn[1][0] for turn in found)
    cores = statistics.median(turn[2][1] for turn in found)
    work = statistics.median(
        turn[2][1] / (2 * turn[2][0]) / (turn[1][1] / turn[1][0]) for turn in found
    )
    counts = f"{name:14}{rows:8}{one:14,.0f}{two:14,.0f}"
    facts = (ratio, statistics.median(together), cores, work)
    return counts + "".join(f"{fact:8.2f}" for fact in facts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("nets", nargs="*", default=list(SHAPES), help=", ".join(SHAPES))
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 256], help="of each replica")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a turn of either")
    options = parser.parse_args()
    heads = "".join(f"{text:>8}" for text in ("ratio", "apart", "cores", "work"))
    print(f"{'net':14}{'rows':>8}{'1: rows/s':>14}{'2: rows/s':>14}{heads}")
    with alone():
        for name in options.nets:
            for rows in options.rows:
                print(compare(name, rows, options.turns, options.seconds), flush=True)


if __name__ == "__main__":
    main()
