"""``python -m tests.benchmarks.cluster``: steps on two workers, and the overhead of two processes.

A replica on each worker of a local cluster, against threads, two trainer processes, single dask
tasks, and PyTorch's DistributedDataParallel. ``empty`` only passes values, as dask's and Ray's own
tasks, actors and graphs do. All train in turn, as in ``python -m tests.benchmarks``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.benchmarks import machine, report
from tests.benchmarks.driver import measure
from tests.benchmarks.peers import sequences
from tests.benchmarks.peers.workloads import TITLES, WORKLOADS
from tests.benchmarks.registry import Entry, installed

_CLUSTER, _TASKS = "dpexec-cluster", "dpexec-cluster:collectives=tasks"
_FLUID = ["dpexec", _CLUSTER, _TASKS]
_PASSING = [*_FLUID, "dask-tasks", "dask-actors", "ray-actors", "ray-graph"]
_TEXTS = ("lstm", "dynamic")
_EMPTY = "100 KB to each of the replicas, and a number back"
SPECS: dict[str, dict[str, Any]] = {
    "empty": {"net": "mean", "batch": 2, "inputs": 25_600, "optimizer": None},
    **{name: WORKLOADS[name] for name in ("W1", "W2", "W4", "W1b", "W3", "W5")},
    **{name: sequences.WORKLOADS[name] for name in _TEXTS},
}


def peers_of(name: str) -> list[str]:
    """Who takes part in a workload."""
    if name == "empty":
        return _PASSING
    trainers = [*_FLUID, "dpexec-trainers"]
    return trainers if name in _TEXTS else [*trainers, "torch-ddp"]


def verdict(run: report.Run) -> str:
    """What a step on the cluster takes more than, or in units of, the others' steps."""
    found = {result["label"]: result["ms"] for result in run["peers"] if "ms" in result}
    own = found.get(_CLUSTER)
    if own is None:
        return "  the cluster failed"
    shown = []
    if "dpexec-trainers" in found:
        shown.append(f"trainers {own - found['dpexec-trainers']:+.2f} ms")
    shown += [f"{own / ms:.2f} x {label}" for label, ms in found.items() if label != _CLUSTER]
    return f"  cluster: {own:.3f} ms; {'; '.join(shown)}"


def main(given: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.cluster", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(SPECS))
    parser.add_argument("--replicas", type=int, default=2, help="workers (default: 2)")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.6, help="of a block (default: 0.6)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything into it")
    options = parser.parse_args(given)
    unknown = set(options.workloads) - set(SPECS)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    titles, runs = {**TITLES, **sequences.TITLES, "empty": _EMPTY}, {}
    for name in options.workloads or SPECS:
        spec = dict(SPECS[name], batch=options.replicas) if name == "empty" else SPECS[name]
        entries = [
            Entry(label, spec, options.replicas)
            for label in installed(peers_of(name), options.replicas)
        ]
        run = report.summarize(measure(entries, options.rounds, options.seconds), spec["net"])
        runs[name] = {"machine": machine.describe(), "replicas": options.replicas, **run}
        print(report.table(f"{name}  {titles[name]}", run), verdict(run), sep="\n", flush=True)
    if options.json:
        options.json.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
