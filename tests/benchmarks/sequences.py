"""``python -m tests.benchmarks.sequences``: texts of different lengths, on dpexec and on Paddle.

Every batch has other lengths. Both train in turn, as in ``python -m tests.benchmarks``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tests.benchmarks import report
from tests.benchmarks.driver import measure
from tests.benchmarks.peers.sequences import TITLES, WORKLOADS
from tests.benchmarks.registry import Entry, installed


def main(
    module: str,
    about: str,
    workloads: Mapping[str, dict[str, Any]],
    titles: Mapping[str, str],
) -> None:
    """Measure and print.

    Args:
        module: name of the module that is run.
        about: what it measures.
        workloads: by name.
        titles: what they are.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(workloads))
    parser.add_argument(
        "--against", default="paddle18:num_threads=2", metavar="PEERS", help="dpexec and paddle18"
    )
    parser.add_argument("--replicas", type=int, default=2, help="parts of a batch (default: 2)")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each (default: 7)")
    options = parser.parse_args()
    unknown = set(options.workloads) - set(workloads)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    labels = installed(["dpexec", *options.against.split(",")], options.replicas)
    for name in options.workloads or workloads:
        spec = workloads[name]
        entries = [Entry(label, spec, options.replicas) for label in labels]
        run = report.summarize(measure(entries, options.rounds, 0.6), spec["net"])
        print(report.table(f"{name}  {titles[name]}", run), flush=True)


if __name__ == "__main__":
    main("tests.benchmarks.sequences", __doc__.partition("\n")[0], WORKLOADS, TITLES)
