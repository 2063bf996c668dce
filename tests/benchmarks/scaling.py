"""``python -m tests.benchmarks.scaling``: the cost of a step as a size grows.

Perceptrons of two or more hidden layers, with Adam; for the lengths of sequences, a
``dynamic_lstm``. Everything but the axis stays as it is. Points of an axis take turns, so that
their ratios hold on a machine whose speed drifts. ``exponent`` is that of the power of the size by
which a step grows from one point to the next: 1 is linear.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks import machine
from tests.benchmarks.driver import measure
from tests.benchmarks.peers import sequences
from tests.benchmarks.peers.workloads import WORKLOADS
from tests.benchmarks.registry import Entry, installed
from tests.benchmarks.report import BUSY

BASE = WORKLOADS["W1"]
AXES: dict[str, list[tuple[dict[str, Any], int]]] = {
    "batch": [({"batch": size}, 2) for size in (16, 64, 256, 1024)],
    "parameters": [({"hidden": [width] * 2}, 2) for width in (32, 128, 512, 1024, 2048)],
    "operators": [({"hidden": [32] * depth}, 2) for depth in (2, 8, 32, 128)],
    "replicas": [({"batch": 512, "hidden": [512] * 2}, number) for number in (1, 2, 4, 8, 16)],
    "fetched": [({"hidden": [32] * 32, "fetched": number}, 2) for number in (1, 4, 16, 64)],
    "lengths": [
        (sequences.WORKLOADS["lstm"] | {"batch": 16, "lengths": (length, length)}, 2)
        for length in (8, 32, 128, 512)
    ],
}
"""By axis, what differs from the base at each point, and the number of replicas."""


def size_of(axis: str, spec: dict[str, Any], replicas: int, result: dict[str, Any]) -> int:
    """Where a point lies on its axis."""
    if axis == "batch":
        return spec["batch"]
    if axis == "operators":
        return result["operators"]
    if axis == "replicas":
        return replicas
    if axis == "fetched":
        return spec["fetched"]
    if axis == "lengths":
        return spec["lengths"][1]
    sizes = [spec["inputs"], *spec["hidden"], spec["classes"]]
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes))


def measure_axis(axis: str, labels: list[str], rounds: int, seconds: float) -> dict[str, Any]:
    """Points of an axis.

    Returns:
        ``busy`` and ``points``: one list of results for each label, with their ``size``.
    """
    points = [(BASE | changes, replicas) for changes, replicas in AXES[axis]]
    entries = [Entry(label, spec, number) for label in labels for spec, number in points]
    found = measure(entries, rounds, seconds)
    lines: dict[str, list[dict[str, Any]]] = {}
    for index, (entry, result) in enumerate(zip(entries, found, strict=True)):
        if "error" not in result:
            # peers have no operators to count: they lie where dpexec's point lies
            first = found[index % len(points)]
            result["size"] = size_of(axis, entry.spec, entry.replicas, first)
            lines.setdefault(entry.label, []).append(result)
    busy = any(result["other_cpu"] > BUSY for line in lines.values() for result in line)
    return {"busy": busy, "points": lines}


def table(axis: str, run: dict[str, Any]) -> str:
    """The points of an axis, with what one unit more costs."""
    head = ("ms/step", "first step s", "MB", "tasks", "us/unit more", "exponent")
    lines = [f"{axis:>28}" + "".join(f"{text:>14}" for text in head)]
    for label, points in run["points"].items():
        lines.append(label)
        for before, point in zip([None, *points], points, strict=False):
            more = power = "-"
            if before and point["size"] != before["size"]:
                step = (point["ms"] - before["ms"]) / (point["size"] - before["size"])
                more = f"{step * 1e3:.4f}"
                growth = math.log(point["ms"] / before["ms"])
                power = f"{growth / math.log(point['size'] / before['size']):.2f}"
            cells = (
                f"{point['ms']:.3f}",
                f"{point['first_step_s']:.2f}",
                str(point["memory_mb"]),
                str(point.get("dask_tasks", "")),
                more,
                power,
            )
            lines.append(f"{point['size']:28}" + "".join(f"{text:>14}" for text in cells))
    if run["busy"]:
        lines.append("VOID: something else used the processors meanwhile")
    return "\n".join(lines)


def plot(runs: dict[str, Any], path: Path) -> None:
    """One picture with a field for each axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, fields = pyplot.subplots(1, len(runs), figsize=(4 * len(runs), 3.5), squeeze=False)
    for (axis, run), field in zip(runs.items(), fields[0], strict=True):
        for label, points in run["points"].items():
            sizes, times = [[p[key] for p in points] for key in ("size", "ms")]
            field.plot(sizes, times, marker="o", label=label)
        field.set(xscale="log", yscale="log", xlabel=axis, ylabel="ms/step")
        for scale, text in ((field.xaxis, ticker.EngFormatter(sep="")), (field.yaxis, "{x:g}")):
            scale.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            scale.set_major_formatter(text)
            scale.set_minor_formatter(ticker.NullFormatter())
        field.grid(alpha=0.3)
    fields[0][0].legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.scaling",
        description=__doc__.partition("\n")[0].partition(": ")[2],
    )
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=", ".join(AXES))
    parser.add_argument("--against", default="", metavar="PEERS", help="default: none")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a block (default: 0.4)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything into it")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw: .png, .svg, .pdf")
    options = parser.parse_args(given)
    unknown = set(options.axes) - set(AXES)
    if unknown:
        parser.error(f"no such axis: {', '.join(sorted(unknown))}")
    try:
        options.labels = installed(["dpexec", *options.against.split(",")], 2)
    except ValueError as error:
        parser.error(str(error))
    return options


def main(given: list[str] | None = None) -> int:
    """Measure, print, write, draw."""
    options = arguments(given)
    runs: dict[str, Any] = {}
    about = machine.describe()
    for axis in options.axes or list(AXES):
        runs[axis] = measure_axis(axis, options.labels, options.rounds, options.seconds)
        print(table(axis, runs[axis]), flush=True)
    if options.json:
        text = json.dumps({"machine": about, "axes": runs}, indent=1)
        options.json.write_text(text + "\n")
    if options.plot:
        plot(runs, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
