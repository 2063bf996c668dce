"""A panel of the live view: the groups of tasks in the steps of each worker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from html import escape
from statistics import median
from typing import Any

from dpexec.viz.live_panels.live_parts import fit, framed, more, rect, svg
from dpexec.viz.pages.units import counted, seconds_text

__all__ = ["groups"]

_WIDTH, _LEFT, _RIGHT, _ROW = 980.0, 230.0, 740.0, 20.0
_MOST_MEMBERS, _MOST_GROUPS = 8, 12
_SILENT, _NEWS = 3.0, 300.0  # seconds


def groups(board: Any) -> str:
    """Return the groups of tasks of a step, with their times."""
    shown = sorted((m for m in board.members.values() if m.groups), key=lambda m: m.name)
    there = [member for member in shown if member.left is None]
    found = [(f"worker {m.name}", m.steps, *_usual(m)) for m in there[:_MOST_MEMBERS]]
    if not shown and board.durations:
        found = [("this process", board.steps, *_sampled(board))]  # devices may work side by side
    if not found and not shown:
        return '<p class="note">The first recorded step appears here.</p>'
    longest = max((max(period, *each.values()) for *_, period, each in found), default=0.0)
    parts: list[str] = []
    y = 0.0
    for name, steps, period, each in found:
        each_of = "each" if shown else "in recorded ones"
        heading = f"{name}: {counted(steps, 'step')}, {seconds_text(period)} {each_of}"
        parts.append(f'<text class="strong" x="0" y="{y + 14:.1f}">{escape(heading)}</text>')
        y += _ROW
        for group, seconds in _rows(each, None if shown else _between(board), period):
            parts += _row(group, seconds, period, longest, _roles(board, group), y)
            y += _ROW
        y += 6.0
    picture = svg(_WIDTH, y, parts, "What steps consist of")
    return f'{picture}<p class="note">{escape(" ".join(_notes(board, shown, len(there))))}</p>'


def _usual(member: Any) -> tuple[float, dict[str, float]]:
    """Seconds between steps, and of each group per step; of the latest steps, if there are any."""
    steps, elapsed, found = member.lately()
    if not steps or not found:
        steps, elapsed, found = member.steps, 0.0, member.groups
    each = {name: group.seconds / max(steps, 1) for name, group in found.items()}
    return elapsed / max(steps, 1) or sum(each.values()), each


def _sampled(board: Any) -> tuple[float, dict[str, float]]:
    """The same for this process, from recorded steps; groups in the order of a step."""
    each: dict[str, float] = {}
    for key in (key for box in board.boxes for key in box["keys"] if key in board.durations):
        name = key.rpartition("-")[0]
        each[name] = each.get(name, 0.0) + median(board.durations[key])
    return median(seconds for seconds, _ in board.recorded), each


def _between(board: Any) -> float:
    """Seconds of a step in which no task of this process runs."""
    return median(idle for _, idle in board.recorded)


def _roles(board: Any, group: str) -> dict[str, int]:
    """The roles of the tasks in a group."""
    found = (b["roles"] for b in board.boxes for k in b["keys"] if k.rpartition("-")[0] == group)
    return next(found, {"collective" if "_dev" not in group else "feed": 1})


def _rows(
    each: Mapping[str, float], between: float | None, period: float
) -> Iterator[tuple[str, float]]:
    """The groups in the order of a step, then the time between them; None for what remains."""
    rows = list(each.items())
    if len(rows) > _MOST_GROUPS:
        rest = rows[_MOST_GROUPS - 1 :]
        rows[_MOST_GROUPS - 1 :] = [(f"{len(rest)} further groups", sum(s for _, s in rest))]
    yield from rows
    left = period - sum(each.values()) if between is None else between
    if left > 0.0:
        yield "", left


def _row(
    name: str, seconds: float, period: float, longest: float, roles: dict[str, int], y: float
) -> Iterator[str]:
    width = max(seconds / (longest or 1.0) * (_RIGHT - _LEFT), 0.6)
    text = f"{seconds_text(seconds)} a step, {seconds / (period or 1.0):.0%}"
    label, side = fit(name or "between tasks", _LEFT - 10), "" if name else "faint "
    yield f'<text class="{side}" x="8" y="{y + 13:.1f}">{escape(label)}</text>'
    yield rect(_LEFT, y + 2, _RIGHT - _LEFT, _ROW - 4, "panel")
    if name:
        yield framed(_LEFT, y + 2, width, _ROW - 4, roles)
    yield f'<text class="{side}" x="{_RIGHT + 10}" y="{y + 13:.1f}">{text}</text>'


def _notes(board: Any, members: list[Any], there: int) -> Iterator[str]:
    every = max((member.every for member in members if member.left is None), default=1)
    if every > 1:
        yield f"Measured in one of {every:,} steps."
    if not members:
        yield "Medians of the latest recorded steps."
    now = time.time()
    for member in members:
        if member.left is not None:
            if now - member.left < _NEWS:
                yield f"Worker {member.name} has left {seconds_text(now - member.left)} ago."
        elif now - member.at > _SILENT and not board.is_idle:
            yield f"Worker {member.name} was last heard of {seconds_text(now - member.at)} ago."
    yield more(
        there - _MOST_MEMBERS, "further worker is not drawn", "further workers are not drawn"
    )
