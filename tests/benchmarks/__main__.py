"""``python -m tests.benchmarks W1 W2 --against torch-ddp,paddle18``: dpexec and its peers."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks import machine, report
from tests.benchmarks.driver import measure
from tests.benchmarks.peers.workloads import TITLES, WORKLOADS
from tests.benchmarks.registry import ALL, KINDS, Entry, installed, variable_of

BASELINE = Path(__file__).with_name("baseline.json")
_EPILOG = f"""\
peers: {", ".join(KINDS)}.
Settings follow a peer's name: paddle18:num_threads=2, dpexec:reduce_strategy=Reduce. Those in
capitals are environment variables: dpexec:PYTHONPATH=/another/checkout.

{", ".join(sorted({variable_of(name) for name in KINDS}))}
name the Pythons that have the peers. A peer that is not installed is left out.
"""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Train the workloads on dpexec and on its peers in turn, and compare.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--against", default=",".join(ALL), metavar="PEERS", help="default: all")
    parser.add_argument("--replicas", type=int, default=2, help="parts of a batch (default: 2)")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.6, help="of a block (default: 0.6)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything into it")
    parser.add_argument(
        "--compare",
        nargs="?",
        type=Path,
        const=BASELINE,
        metavar="FILE",
        help="say what moved since FILE was written (default: the baseline)",
    )
    parser.add_argument(
        "--record", action="store_true", help="the new baseline, unless the machine was busy"
    )
    options = parser.parse_args(given)
    unknown = set(options.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    if options.compare and not options.compare.exists():
        parser.error(f"there is no {options.compare}")
    labels = ["dpexec", *options.against.split(","), "products", "torch-products"]
    try:
        options.labels = [entry.label for entry in installed(labels, {}, options.replicas)]
    except ValueError as error:
        parser.error(str(error))
    return options


def main(given: list[str] | None = None) -> int:
    """Measure, print, write.

    Returns:
        The exit code: 1 when dpexec failed, or when nothing could be recorded.
    """
    options = arguments(given)
    before = json.loads(options.compare.read_text()) if options.compare else {}
    runs: dict[str, Any] = {}
    for name in options.workloads or list(WORKLOADS):
        spec = WORKLOADS[name]
        entries = [Entry(label, spec, options.replicas) for label in options.labels]
        about = {"machine": machine.describe(), "replicas": options.replicas, "spec": spec}
        measured = measure(entries, options.rounds, options.seconds)
        runs[name] = about | report.summarize(measured, spec["net"])
        print(report.table(f"{name}  {TITLES[name]}", runs[name]), flush=True)
        if options.compare and name in before:
            print(report.comparison(name, before[name], runs[name]), flush=True)
    if options.json:
        options.json.write_text(report.as_text(runs))
    failed = any("error" in run["peers"][0] for run in runs.values())
    if options.record:
        failed |= not record(runs)
    return int(failed)


def record(runs: dict[str, Any]) -> bool:
    """Write the baseline; workloads that were not measured keep their figures."""
    busy = [name for name, run in runs.items() if run["busy"]]
    if busy:
        print(f"nothing is recorded: the machine was busy during {', '.join(busy)}")
        return False
    known = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    BASELINE.write_text(report.as_text(known | runs))
    return True


if __name__ == "__main__":
    sys.exit(main())
