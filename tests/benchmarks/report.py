"""Converts measurements to tables: ratios, the physical bound, and changes since a baseline."""

from __future__ import annotations

import json
import math
import re
import statistics
from typing import Any

LOSS_TOLERANCE = 0.002
CHAOTIC = {"resnet": 0.2, "yolov3": 0.1, "DynamicRNN": 0.05}  # rounding grows within 30 steps
BUSY = 0.15  # processors in use by others, from which on figures are void
Run = dict[str, Any]


def summarize(measured: list[dict[str, Any]], net: str) -> Run:
    """Take products and peers apart, and compare.

    Args:
        measured: what :func:`measure` found on one workload.
        net: its net.

    Returns:
        ``peers``: what was measured, each with the ``ratio`` of dpexec's time to its own;
        ``bound_ms``: the matrix products alone, or None; ``share_of_bound``; ``traffic_ms``: what
        the update must read and write, or None; ``share_of_traffic``; ``busy``: whether
        somebody else used the machine; ``against_parallel`` and ``against_all``: dpexec's time in
        that of the best data-parallel peer and of the best peer; ``other_losses``: labels of those
        whose loss at step 30 is not dpexec's, so that they did other work.
    """
    good = [result for result in measured if "error" not in result]
    bounds = [result["ms"] for result in good if result["label"].endswith("products")]
    traffic = [result["ms"] for result in good if result["label"].endswith("traffic")]
    peers = [r for r in measured if not r["label"].endswith(("products", "traffic"))]
    dpexec = next((r for r in good if r["label"] == "dpexec"), None)
    own = dpexec and dpexec["ms"]
    for result in peers:
        if own and "ms" in result:
            result["ratio"] = own / result["ms"]
    tolerance = CHAOTIC.get(net, LOSS_TOLERANCE)
    differ = [
        result["label"]
        for result in peers
        if "ratio" in result and not math.isclose(result["loss"], dpexec["loss"], rel_tol=tolerance)
    ]
    others = [r for r in peers if "ratio" in r and not r["label"].startswith("dpexec")]
    bound = min(bounds, default=None)
    return {
        "bound_ms": bound,
        "share_of_bound": bound / own if bound and own else None,
        "traffic_ms": min(traffic, default=None),
        "share_of_traffic": min(traffic) / own if traffic and own else None,
        "busy": any(result["other_cpu"] > BUSY for result in good),
        "against_parallel": max((r["ratio"] for r in others if r["data_parallel"]), default=None),
        "against_all": max((r["ratio"] for r in others), default=None),
        "other_losses": differ,
        "peers": peers,
    }


def table(title: str, run: Run) -> str:
    """One workload, the fastest first; ``ratio`` is dpexec's time in that of the peer."""
    width = max(len(result["label"]) for result in run["peers"]) + 4
    lines = [
        title,
        f"{'':{width}}{'ms/step':>9}{'min':>9}{'max':>9}{'ratio':>7}{'MB':>6}{'threads':>8}"
        f"{'tasks':>6}{'CPUs':>6}{'other':>6}{'waits':>6}{'loss 30':>9}",
    ]
    for result in sorted(run["peers"], key=lambda result: result.get("ms", float("inf"))):
        label = f"  {result['label']:{width - 2}}"
        if "error" in result:
            lines.append(f"{label} failed: {result['error']}")
            continue
        lines.append(
            f"{label}{result['ms']:9.3f}{result['ms_min']:9.3f}{result['ms_max']:9.3f}"
            f"{_number(result.get('ratio')):>7}{result['memory_mb']:6}{result['threads']:8}"
            f"{result.get('dask_tasks', ''):>6}{result['cpu']:6.2f}{result['other_cpu']:6.2f}"
            f"{result['cpu_wait']:6.2f}{result['loss']:9.4f}"
        )
    lines.append(
        f"  dpexec / best data-parallel peer: {_number(run['against_parallel'])}, "
        f"dpexec / best peer: {_number(run['against_all'])}"
    )
    if run["bound_ms"]:
        lines.append(
            f"  its matrix products alone: {run['bound_ms']:.3f} ms, "
            f"{_number(run['share_of_bound'])} of dpexec's step"
        )
    if run["traffic_ms"]:
        lines.append(
            f"  the memory traffic of its update alone: {run['traffic_ms']:.3f} ms, "
            f"{_number(run['share_of_traffic'])} of dpexec's step"
        )
    if run["bound_ms"] and run["traffic_ms"]:
        both = run["share_of_bound"] + run["share_of_traffic"]
        lines.append(f"  dpexec's step takes {1 / both:.2f} times as long as both together")
    if run["other_losses"]:
        lines.append(f"  WRONG: another loss at step 30: {', '.join(run['other_losses'])}")
    if run["busy"]:
        lines.append("  VOID: something else used the processors meanwhile (see: other)")
    return "\n".join(lines)


def comparison(name: str, before: Run, now: Run) -> str:
    """What moved on one workload.

    Absolute times drift with the hour, so dpexec's change is also given in that of its peers.
    """
    old = {result["label"]: result for result in before["peers"] if "ms" in result}
    pairs = [(old[r["label"]], r) for r in now["peers"] if "ms" in r and r["label"] in old]
    if not pairs:
        return f"{name}: nothing to compare with"
    head = ("ms before", "now", "change", "ratio before", "now")
    width = max(len(new["label"]) for _, new in pairs) + 4
    title = f"{name} since {before['machine']['commit']} ({before['machine']['date']})"
    lines = [title, " " * width + "".join(f"{text:>13}" for text in head)]
    for was, new in pairs:
        cells = (f"{was['ms']:.3f}", f"{new['ms']:.3f}", f"{new['ms'] / was['ms']:.2f}")
        ratios = (_number(was.get("ratio")), _number(new.get("ratio")))
        label = f"  {new['label']:{width - 2}}"
        lines.append(label + "".join(f"{text:>13}" for text in cells + ratios))
    changes = {new["label"]: new["ms"] / was["ms"] for was, new in pairs}
    others = [change for label, change in changes.items() if not label.startswith("dpexec")]
    if "dpexec" in changes and others:
        drift = statistics.median(others)
        lines.append(
            f"  dpexec takes {changes['dpexec'] / drift:.2f} of the time it took, "
            f"in units of its peers, who take {drift:.2f} (median)"
        )
    return "\n".join(lines)


def as_text(runs: dict[str, Run]) -> str:
    """Runs by workload as JSON, one line for each peer."""
    return re.sub(r"\n {4,}", " ", json.dumps(runs, indent=1)) + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
