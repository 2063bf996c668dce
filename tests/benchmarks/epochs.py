"""``python -m tests.benchmarks.epochs``: an epoch over a dask dataframe, on threads and on workers.

A perceptron (784-200-10, Adam, two replicas) trains on a dataframe in parts, each of which is made
when it is needed. Variants take turns; the fastest epoch counts. Processor time is that of all
processes, and says more than the clock on a machine that is busy.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas
from distributed import Client

import dpexec as fluid
from tests.distributed.traffic import client_bytes

FEATURES, CLASSES = 784, 10
COLUMNS = [f"x{index}" for index in range(FEATURES)]


def part(number: int, rows: int) -> Any:
    """A partition."""
    random = np.random.default_rng(number)
    values = random.random((rows, FEATURES), "float32")
    return pandas.DataFrame(values, columns=COLUMNS).assign(y=random.integers(0, CLASSES, rows))


class Variant:
    """A way to train.

    Args:
        scheduler: ``"threads"`` or a client.
        collectives: ``"tasks"``, ``"gang"`` or ``"auto"``.
        batch: its rows.
    """

    def __init__(self, scheduler: Any, collectives: str, batch: int) -> None:
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 1
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            x = fluid.data("x", [None, FEATURES], "float32")
            y = fluid.data("y", [None, 1], "int64")
            hidden = fluid.layers.fc(x, 200, act="relu")
            prediction = fluid.layers.fc(hidden, CLASSES, act="softmax")
            loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
            fluid.optimizer.Adam(0.001).minimize(loss)
        self.exe, self._scope, self._batch = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), batch
        self.exe.run(startup, scope=self._scope)
        execution = fluid.ExecutionStrategy()
        execution.scheduler, execution.collectives = scheduler, collectives
        self._compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, exec_strategy=execution, places=fluid.cpu_places(2)
        )
        self._client = scheduler if isinstance(scheduler, Client) else None

    def _processor_time(self) -> float:
        workers = {} if self._client is None else self._client.run(time.process_time)
        return time.process_time() + sum(workers.values())

    def epoch(self, frame: Any) -> tuple[float, float, int]:
        """Seconds by the clock, of processors, and bytes through the client."""
        scheduler = "" if self._client is None else self._client.scheduler.address
        used, began = self._processor_time(), time.perf_counter()
        with client_bytes(scheduler) as counted:
            self.exe.train_from_dask(
                self._compiled,
                frame,
                {"x": COLUMNS, "y": "y"},
                batch_size=self._batch,
                scope=self._scope,
            )
        seconds = time.perf_counter() - began
        return seconds, self._processor_time() - used, counted["bytes"]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--parts", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--modes", nargs="+", default=["gang", "tasks"])
    parser.add_argument("--persist", action="store_true", help="parts lie on the workers")
    options = parser.parse_args()
    size = FEATURES * 4 + 8
    rows = options.megabytes * 10**6 // size // options.parts
    frame = dd.from_map(part, range(options.parts), rows=rows)
    nbytes = rows * options.parts * size
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        variants: dict[str, tuple[Any, str]] = {"threads": ("threads", "tasks")}
        variants.update({mode: (client, mode) for mode in options.modes})
        best: dict[str, tuple[float, float, int]] = {}
        trained = {name: Variant(*how, options.batch) for name, how in variants.items()}
        held = client.persist(frame) if options.persist else frame
        here = dd.from_map(part, range(options.parts), rows=rows)
        for _ in range(options.epochs + 1):
            for name, variant in trained.items():
                if name == "threads":
                    with dask.config.set(scheduler="threads"):
                        found = variant.epoch(here)
                else:
                    found = variant.epoch(held)
                best[name] = min(best.get(name, found), found)
        steps = -(-rows * options.parts // options.batch)
        print(f"{nbytes / 1e6:.0f} MB in {options.parts} parts, {steps} steps")
        for name, (seconds, used, through) in best.items():
            ratio = seconds / best["threads"][0], used / best["threads"][1]
            print(
                f"{name:>8} {seconds:7.2f} s ({ratio[0]:.2f}), {used:7.2f} s of processors "
                f"({ratio[1]:.2f}), {through / nbytes:.2%} of the data through the client",
                flush=True,
            )
        for variant in trained.values():
            variant.exe.close()


if __name__ == "__main__":
    sys.exit(main())
