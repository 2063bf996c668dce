"""``python -m tests.benchmarks W1 W2 --against torch-ddp,paddle18``: dpexec and its peers."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from dpexec.engine.core.places import is_compiled_with_cuda, why_no_gpu
from tests.benchmarks import machine, report
from tests.benchmarks.driver import measure
from tests.benchmarks.peers.workloads import GPU_WORKLOADS, TITLES, WORKLOADS
from tests.benchmarks.registry import ALL, GPU, KINDS, Entry, installed, variable_of

BASELINE = Path(__file__).with_name("baseline.json")
_EPILOG = f"""\
peers: {", ".join(KINDS)}.
Settings follow a peer's name: paddle18:num_threads=2, dpexec:reduce_strategy=Reduce. Those in
capitals are environment variables: dpexec:PYTHONPATH=/another/checkout.

{", ".join(sorted({variable_of(name) for name in KINDS}))}
name the Pythons that have the peers. A peer that is not installed is left out.

On GPUs: {", ".join(GPU_WORKLOADS)}; dpexec uses as many GPUs as there are replicas, others one.
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
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument(
        "--precision",
        choices=("float32", "tf32", "bfloat16"),
        help="of the products on GPUs (default: float32, for W6 bfloat16)",
    )
    parser.add_argument("--against", metavar="PEERS", help="default: all")
    parser.add_argument("--replicas", type=int, help="parts of a batch (default: 2, on GPUs 1)")
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
    _complete(parser, options)
    return options


def _complete(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Defaults that depend on the device; ends the program if something cannot be measured."""
    on_gpus = options.device == "gpu"
    options.specs = GPU_WORKLOADS if on_gpus else WORKLOADS
    unknown = set(options.workloads) - set(options.specs)
    if unknown:
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    if options.compare and not options.compare.exists():
        parser.error(f"there is no {options.compare}")
    if on_gpus and options.record:
        parser.error("the baseline is of CPUs: write figures of GPUs with --json")
    if on_gpus and not is_compiled_with_cuda():
        parser.error(f"--device gpu: {why_no_gpu()}")
    if not on_gpus and options.precision not in (None, "float32"):
        parser.error("--precision is for GPUs; on CPUs say dpexec:product_precision=bfloat16")
    options.replicas = options.replicas or (1 if on_gpus else 2)
    default = ",".join(GPU if on_gpus else ALL)
    against = default if options.against is None else options.against
    bounds = ["products", "dpexec-products", "torch-products", "traffic"]
    bounds = ["torch-products", "torch-traffic"] if on_gpus else bounds
    labels = ["dpexec", *against.split(","), *bounds]
    try:
        options.labels = installed(labels, options.replicas, options.device)
    except ValueError as error:
        parser.error(str(error))


def main(given: list[str] | None = None) -> int:
    """Measure, print, write.

    Returns:
        The exit code: 1 when dpexec failed, or when nothing could be recorded.
    """
    options = arguments(given)
    before = json.loads(options.compare.read_text()) if options.compare else {}
    runs: dict[str, Any] = {}
    for name in options.workloads or list(options.specs):
        spec = options.specs[name]
        precision = options.precision or spec.get("precision", "float32")
        how = options.replicas, options.device, precision
        entries = [Entry(label, spec, *how) for label in options.labels]
        about = {"machine": machine.describe(), "replicas": options.replicas, "spec": spec}
        about["precision"] = precision
        measured = measure(entries, options.rounds, options.seconds)
        runs[name] = about | report.summarize(measured, spec["net"])
        rounded = "" if precision == "float32" else f", products in {precision}"
        print(report.table(f"{name}  {TITLES[name]}{rounded}", runs[name]), flush=True)
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
