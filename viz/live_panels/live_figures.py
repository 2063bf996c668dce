"""Panels of the live view: figures, curves, and the memory of processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from dpexec.viz.live_panels.live_parts import fit, more, number, rect, svg
from dpexec.viz.pages.units import bytes_text, counted, round_steps, seconds_text, size_ticks

from dpexec.engine.graph.kinds import MODES

__all__ = ["figures", "loss", "memory", "moved", "throughput"]

_WIDTH, _HEIGHT = 460.0, 190.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, _WIDTH - 12.0, 12.0, _HEIGHT - 34.0
_MOST_PROCESSES = 12

Ticks = list[tuple[float, str]]


def figures(board: Any) -> str:
    """Return the most important figures."""
    last = board.loss.points[-1][1] if board.loss.points else math.nan
    steps, samples = (
        series.points[-1][1] if series.points and not board.is_idle else math.nan
        for series in (board.steps_a_second, board.samples_a_second)
    )
    state = "idle" if board.is_idle else "running"
    if board.current is not None:
        state = f"in step {board.current['step']:,} for {seconds_text(board.current['since'])}"
    count = max(board.steps, 1)
    tiles = [
        ("state", state),
        ("steps", f"{board.steps:,}"),
        ("loss", number(last)),
        ("steps/s", number(steps)),
        ("samples/s", number(samples)),
        ("a step takes", seconds_text(board.step_seconds)),
        ("collectives read", f"{bytes_text(board.bytes / count)} a step"),
    ]
    if board.failed:
        tiles.append(("failed steps", f"{board.failed:,}"))
    cells = "".join(
        f'<div class="{name}"><dt>{name}</dt><dd>{escape(text)}</dd></div>'
        if name == "state"
        else f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>"
        for name, text in tiles
    )
    mode = MODES[board.mode].title if board.mode in MODES else board.mode
    devices = counted(len(board.devices), "device")
    ops, tasks = sum(b["ops"] for b in board.boxes), sum(len(b["keys"]) for b in board.boxes)
    folded = f", drawn as {len(board.boxes)} phases" if tasks > len(board.boxes) else ""
    note = f"{devices}, {mode}; {counted(ops, 'operator')} in {counted(tasks, 'task')}{folded}"
    return f'<dl class="tiles">{cells}</dl><p class="note">{escape(note)}</p>'


def loss(board: Any) -> str:
    """Return the curve of the loss."""
    if board.loss.points:
        note = f"mean of {escape(board.loss_name)} over the devices"
    else:
        note = "Fetch the loss to see it." if board.trains else "The program does not train."
    curve = _curve(board.loss.points, _number_ticks, number, "step")
    return f'{curve}<p class="note">{note}</p>'


def throughput(board: Any) -> str:
    """Return the curve of samples per second."""
    points = board.samples_a_second.points
    return _curve(points, _number_ticks, number, "seconds", from_zero=True)


def moved(board: Any) -> str:
    """Return the curve of bytes that collectives read."""
    points = board.bytes_a_second.points
    return _curve(points, _size_ticks, bytes_text, "seconds", from_zero=True)


def memory(board: Any) -> str:
    """Return the memory of processes, as shares of their limits."""
    most = max((limit or used for used, limit in board.memory.values()), default=0) or 1
    parts, y, right = [], 6.0, _WIDTH - 12.0
    for name, (used, limit) in list(board.memory.items())[:_MOST_PROCESSES]:
        text = bytes_text(used) + (f" of {bytes_text(limit)}" if limit else "")
        parts.append(rect(0, y + 16, right, 10, "panel"))
        parts.append(rect(0, y + 16, right * used / most, 10, "meter"))
        parts.append(f'<text x="0" y="{y + 11}">{escape(fit(name, 250))}</text>')
        parts.append(f'<text class="end" x="{right}" y="{y + 11}">{text}</text>')
        y += 36
    hidden = len(board.memory) - _MOST_PROCESSES
    note = more(hidden, "further process is not drawn", "further processes are not drawn")
    return f'{svg(_WIDTH, y, parts, "Memory per process")}<p class="note">{note}</p>'


def _curve(
    points: Sequence[tuple[float, float]],
    ticks: Callable[[float, float], Ticks],
    text: Callable[[float], str],
    below: str,
    from_zero: bool = False,
) -> str:
    """One curve with its scale; NaN and infinity leave gaps."""
    finite = [y for _, y in points if math.isfinite(y)]
    if not finite:
        return '<p class="note">Nothing yet.</p>'
    low, high = min(finite), max(finite)
    if from_zero or (low >= 0 and low < high / 3):
        low = 0.0
    if high == low:
        low, high = (0.0, 2 * low) if low > 0 else (low - 1, high + 1)
    first, last = points[0][0], points[-1][0]

    def at(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - first) / (last - first or 1.0) * (_RIGHT - _LEFT)
        return across, _BOTTOM - (y - low) / (high - low) * (_BOTTOM - _TOP)

    parts = [rect(_LEFT, _TOP - 6, _RIGHT - _LEFT, _BOTTOM - _TOP + 12, "panel")]
    for value, label in ticks(low, high):
        y = at(first, value)[1]
        parts.append(f'<path class="rule" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>')
        parts.append(f'<text class="faint end" x="{_LEFT - 6}" y="{y + 4:.1f}">{label}</text>')
    pen, path = "M", []
    for x, y in points:
        if math.isfinite(y):
            across, up = at(x, y)
            path.append(f"{pen}{across:.1f} {up:.1f}")
        pen = "L" if math.isfinite(y) else "M"
    parts.append(f'<path class="curve" d="{"".join(path)}"/>')
    words = (("", _LEFT, f"{first:,.0f}"), ("middle", (_LEFT + _RIGHT) / 2, below))
    for side, x, word in (*words, ("end", _RIGHT, f"{last:,.0f}")):
        parts.append(f'<text class="faint {side}" x="{x}" y="{_BOTTOM + 20}">{word}</text>')
    return svg(_WIDTH, _HEIGHT, parts, f"Latest value {text(finite[-1])}")


def _size_ticks(low: float, high: float) -> Ticks:
    return size_ticks(high)


def _number_ticks(low: float, high: float) -> Ticks:
    """Round numbers from one to another."""
    steps = round_steps(high - low, 4)
    step = steps[1] if len(steps) > 1 else high - low
    first = math.ceil(low / step - 1e-9)
    values = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
    return [(value, number(round(value, 12))) for value in values]
