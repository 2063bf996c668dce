"""``python -m tests.benchmarks.startup``: the seconds until a process trains.

Processes import the framework, build a net, set first values and make two steps on two replicas.
Those of dpexec do it twice over: with the kernels that are on disk, and with an empty folder, as on
a machine where nothing was compiled. All take turns. Printed are medians of the processor time of
each phase, which other programs on the machine change little, and of the whole time on the clock.
The last lines are of chains of operators: the processor time until their first step has run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dpexec as fluid
from tests.benchmarks.driver import Peer, alone, progress
from tests.benchmarks.peers import sequences, workloads
from tests.benchmarks.peers.harness import PHASES
from tests.benchmarks.registry import Entry, installed

NETS = {
    "perceptron": workloads.WORKLOADS["W1"],
    "ResNet-32": workloads.WORKLOADS["W3"],
    "dynamic_lstm": sequences.WORKLOADS["lstm"],
    "DynamicRNN": sequences.WORKLOADS["dynamic"],
}
CHAINS = (10_000, 100_000)


def phases_of(entry: Entry) -> dict[str, list[float]]:
    """Seconds on the clock and on processors, by phase, of a process of its own."""
    with tempfile.TemporaryDirectory(prefix="dpexec-startup-") as folder:
        peer = Peer(entry, Path(folder, "peer"))
        try:
            phases: dict[str, list[float]] = peer.start()["phases"]
        finally:
            peer.stop()
    return phases


def measured(labels: Sequence[str], spec: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Medians over fresh processes: processor seconds of the phases, and the time of all."""
    found: dict[str, list[dict[str, list[float]]]] = {}
    for number in range(rounds):
        for label in (*labels, "dpexec, nothing compiled"):
            progress(f"{label}: process {number + 1} of {rounds}")
            with tempfile.TemporaryDirectory(prefix="dpexec-startup-") as empty:
                cold = f"dpexec:NUMBA_CACHE_DIR={empty}"
                entry = Entry(label if label in labels else cold, spec)
                found.setdefault(label, []).append(phases_of(entry))
    return {
        label: [
            *(statistics.median(run[phase][1] for run in runs) for phase in PHASES),
            statistics.median(sum(run[phase][0] for phase in PHASES) for run in runs),
        ]
        for label, runs in found.items()
    }


def table(title: str, rows: dict[str, list[float]]) -> str:
    """The medians as text."""
    head = "".join(f"{text:>13}" for text in (*PHASES, "all, clock"))
    lines = [f"{title:>26}{head}"]
    lines += [f"{label:>26}" + "".join(f"{s:13.2f}" for s in row) for label, row in rows.items()]
    return "\n".join(lines)


def chain_seconds(operators: int) -> float:
    """Processor seconds of the first step of a chain of operators on two replicas."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 8])
        for _ in range(operators):
            x = fluid.layers.scale(x, 1.0)
    places = fluid.cpu_places(2)
    compiled = fluid.CompiledProgram(main).with_data_parallel(places=places)
    exe = fluid.Executor(fluid.CPUPlace())
    start = time.process_time()
    exe.run(compiled, feed={"x": np.ones((8, 8), np.float32)}, fetch_list=[x])
    return time.process_time() - start


def main() -> None:
    """Measure and print."""
    about = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.startup", description=about)
    parser.add_argument("nets", nargs="*", metavar="NET", help=", ".join(NETS))
    parser.add_argument("--against", default="paddle18:num_threads=2", metavar="PEERS")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each (default: 5)")
    options = parser.parse_args()
    unknown = set(options.nets) - set(NETS)
    if unknown:
        parser.error(f"no such net: {', '.join(sorted(unknown))}")
    labels = installed(["dpexec", *options.against.split(",")], 2)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # it would have each process compile sources
    with alone():
        for name in options.nets or NETS:
            print(table(name, measured(labels, NETS[name], options.rounds)), flush=True)
        for operators in () if options.nets else CHAINS:
            print(f"a chain of {operators:,} operators: {chain_seconds(operators):.2f}", flush=True)


if __name__ == "__main__":
    main()
