"""``python -m tests.benchmarks.gangs``: steps on a local cluster, as dask tasks and in gangs.

A layer without much to compute has as many parameters as asked for, so that what a step takes is
what it takes to exchange gradients and to update. Variants take turns; the fastest of several
blocks counts, as other work on the machine only ever adds to a time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
from distributed import Client

import dpexec as fluid

SIZES = {"1 KB": 1 << 10, "4 MB": 4 << 20, "100 MB": 100 << 20}
_ROWS = 4  # per replica
_WIDTH = 16


def program(nbytes: int) -> tuple[Any, Any, Any]:
    """A perceptron of some layers with SGD; most of its parameters in a square matrix."""
    side = max(_WIDTH, round((nbytes / 4) ** 0.5))
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, side], "float32")
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, side)))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, loss


class Variant:
    """A way to train.

    Args:
        nbytes: of parameters.
        scheduler: ``"threads"`` or a client.
        collectives: ``"tasks"`` or ``"gang"``.
        steps: per run.
    """

    def __init__(self, nbytes: int, scheduler: Any, collectives: str, steps: int) -> None:
        main, startup, self._loss = program(nbytes)
        self._scope, self._exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(self._scope):
            self._exe.run(startup)
        execution = fluid.ExecutionStrategy()
        execution.scheduler, execution.collectives = scheduler, collectives
        execution.num_iteration_per_run = self._steps = steps
        self._compiled = fluid.CompiledProgram(main).with_data_parallel(
            self._loss.name, exec_strategy=execution, places=fluid.cpu_places(2)
        )
        side = main.global_block().var("x").shape[1]
        rows = np.random.RandomState(0).randn(2 * _ROWS, side)
        self._feed = {"x": rows.astype("float32") / side}

    def milliseconds(self, runs: int) -> float:
        """What a step takes, of some runs."""
        began = time.perf_counter()
        for _ in range(runs):
            with fluid.scope_guard(self._scope):
                self._exe.run(self._compiled, feed=self._feed, fetch_list=[self._loss])
        return (time.perf_counter() - began) * 1e3 / (runs * self._steps)


def use_sockets() -> None:
    """Let a worker take all others for other hosts."""
    from dpexec.engine.exchange import rendezvous

    rendezvous.host_id = lambda: ""


def measure(client: Any, nbytes: int, numbers: list[int], seconds: float) -> dict[str, float]:
    """The fastest block of every variant, in milliseconds per step."""
    makers = {"threads": ("threads", "tasks", 1)}
    for mode, steps in itertools.product(("tasks", "gang"), numbers):
        makers[f"{mode} K={steps}"] = (client, mode, steps)
    best: dict[str, float] = {}
    for name, (scheduler, mode, steps) in makers.items():  # one at a time: memory
        if mode == "tasks" and steps > 10 and nbytes > 50 << 20:
            continue  # a graph has 20 steps at most, and these take seconds
        variant = Variant(nbytes, scheduler, mode, steps)
        for _ in range(3):
            variant.milliseconds(1)
        until = time.perf_counter() + seconds
        runs = max(1, 10 // steps)
        best[name] = min(variant.milliseconds(runs) for _ in range(3))
        while time.perf_counter() < until:
            best[name] = min(best[name], variant.milliseconds(runs))
        engine = variant._compiled._engine
        if engine._cluster is not None:
            engine._cluster.close()
    return best


DDP = """
import os, sys, time
import torch, torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, side, rows, seconds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(side, side))
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    x = torch.randn(rows, side) / side
    def steps(count):
        dist.barrier()
        began = time.perf_counter()
        for _ in range(count):
            sgd.zero_grad()
            net(x).square().mean().backward()
            sgd.step()
        return (time.perf_counter() - began) * 1e3 / count
    steps(5)
    slowest = torch.tensor(steps(10))
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    best = min(steps(10) for _ in range(max(3, int(seconds * 100 / slowest.item()))))
    if rank == 0:
        print(best)
    dist.destroy_process_group()

if __name__ == "__main__":
    side, rows, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    mp.spawn(work, (side, rows, seconds), nprocs=2)
"""


def ddp(nbytes: int, seconds: float, folder: str) -> float | None:
    """What a step of PyTorch's DistributedDataParallel takes; None if it is not installed."""
    python = os.environ.get("DPEXEC_PEER_TORCH")
    if not python:
        return None
    side = max(_WIDTH, round((nbytes / 4) ** 0.5))
    path = os.path.join(folder, "ddp.py")
    with open(path, "w") as file:
        file.write(DDP)
    arguments = [python, path, str(side), str(_ROWS), str(seconds)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    """Measure and print a table."""
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--steps", nargs="+", type=int, default=[1, 10, 100])
    parser.add_argument("--seconds", type=float, default=3.0, help="per variant")
    parser.add_argument("--sockets", action="store_true", help="no shared memory")
    options = parser.parse_args()
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        if options.sockets:
            client.run(use_sockets)
        for size in options.sizes:
            found: dict[str, float | None] = {}
            with tempfile.TemporaryDirectory() as folder:
                found["torch-ddp"] = ddp(SIZES[size], options.seconds, folder)
            found.update(measure(client, SIZES[size], options.steps, options.seconds))
            for name, value in found.items():
                shown = "-" if value is None else f"{value:.2f}"
                print(f"{size:>8} {name:>12} {shown:>10} ms/step", flush=True)


if __name__ == "__main__":
    sys.exit(main())
