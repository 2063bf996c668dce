"""Two panels of the live view: the tasks of a step, and the devices during a recorded one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from dpexec.viz.live_panels.live_parts import CHARACTER, fit, framed, more, rect, svg
from dpexec.viz.pages.style import ROLE_NAMES
from dpexec.viz.pages.units import bytes_text, counted, seconds_text, time_ticks

__all__ = ["graph", "lanes"]

_LANE, _GAP, _ROW, _BOX = 214.0, 12.0, 50.0, 38.0
_MOST_DEVICES = 8
_WIDTH, _LEFT, _BAR = 980.0, 84.0, 17.0
_MARKS = {"done": "✓", "running": "▶", "waiting": "…", "unknown": ""}
_Tasks = Mapping[str, Mapping[str, int]]
"""By key of a task: the number of operators of each role."""
_KEY = "✓ done, ▶ runs, … waits, ▲ takes 1.5 times its median or more."


def graph(board: Any) -> str:
    """Return the tasks of a step, a lane per device, with their roles and states."""
    shown = min(len(board.devices), _MOST_DEVICES)
    boxes = [b for b in board.boxes if b["device"] is None or b["device"] < shown]
    if not boxes:
        return '<p class="note">The plan is not known yet.</p>'
    lane = max(_LANE, min(440.0, (_WIDTH + _GAP) / shown - _GAP))
    places = {row: i for i, row in enumerate(sorted({b["row"] for b in boxes}))}
    width, height = shown * (lane + _GAP) - _GAP, len(places) * _ROW + 34.0
    parts = []
    for device in range(shown):
        x = device * (lane + _GAP)
        parts.append(rect(x, 0, lane, height, "panel"))
        parts.append(
            f'<text class="strong middle" x="{x + lane / 2:.1f}" y="19">device {device}</text>'
        )
    for row, place in places.items():
        for device in (None, *range(shown)):
            here = [b for b in boxes if b["row"] == row and b["device"] == device]
            x = 6.0 if device is None else device * (lane + _GAP) + 6.0
            each = ((width if device is None else lane) - 12.0) / max(len(here), 1)
            for i, box in enumerate(here):
                gap = 4.0 if i + 1 < len(here) else 0.0
                parts.append(_box(board, box, x + i * each, 30.0 + place * _ROW, each - gap))
    hidden = len(board.devices) - shown
    note = more(hidden, "further device is not drawn", "further devices are not drawn")
    picture = svg(width, height, parts, "The tasks of a step and what they do now")
    return f'{picture}<p class="note">{_KEY} {note}</p>'


def _box(board: Any, box: Mapping[str, Any], x: float, y: float, width: float) -> str:
    state, slow, took = board.state(box), board.slowdown(box), board.seconds_of(box)
    facts = [counted(box["ops"], "operator")]
    if box["bytes"]:
        facts.append(bytes_text(box["bytes"]))
    if took is not None:
        facts.append(seconds_text(took))
    mark = f"▲ {slow:.1f}×" if slow else _MARKS[state]
    label = fit(box["label"], width - 20 - 7.0 * len(mark))
    words = f"{state}{f', {slow:.1f} times its median' if slow else ''}"
    details = escape("\n".join([f"{box['label']}, {words}", *box["most"]]))
    return (
        f'<g class="{state}{" slow" if slow else ""}"><title>{details}</title>'
        f"{framed(x, y, width, _BOX, box['roles'])}"
        f'<text class="strong halo" x="{x + 8:.1f}" y="{y + 16:.1f}">{escape(label)}</text>'
        f'<text class="halo" x="{x + 8:.1f}" y="{y + 31:.1f}">'
        f"{escape(fit(' · '.join(facts), width - 16))}</text>"
        f'<text class="strong end halo" x="{x + width - 8:.1f}" y="{y + 16:.1f}">{mark}</text></g>'
    )


def lanes(board: Any) -> str:
    """Return what each device did in the latest recorded step, tasks above their operators."""
    sample = board.sample
    if sample is None or not sample["slices"]:
        return '<p class="note">The first recorded step appears here.</p>'
    roles = {key: box["roles"] for box in board.boxes for key in box["keys"]}
    groups: dict[int | None, list[Sequence[Any]]] = {}
    for row in sample["slices"]:
        groups.setdefault(row[0], []).append(row)
    devices = sorted(device for device in groups if device is not None)
    first = min(row[5] for row in sample["slices"])
    span = max(row[6] for row in sample["slices"]) - first or 1e-9
    scale, y = (_WIDTH - _LEFT - 8) / span, 22.0
    parts: list[str] = []
    for device in (*devices[:_MOST_DEVICES], *([None] if None in groups else [])):
        rows = _stacked(groups[device])
        height = (max(level for level, _ in rows) + 1) * _BAR + 6.0
        name = "between" if device is None else f"device {device}"
        parts.append(rect(_LEFT, y, _WIDTH - _LEFT, height, "panel"))
        parts.append(f'<text class="strong" x="0" y="{y + 15:.1f}">{name}</text>')
        for level, row in rows:
            x, width = _LEFT + 4 + (row[5] - first) * scale, max((row[6] - row[5]) * scale, 0.6)
            parts.append(_slice(row, roles, x, y + 4 + level * _BAR, width))
        y += height + 6.0
    parts += _ticks(span, scale, y)
    hidden = len(devices) - _MOST_DEVICES
    notes = (
        f"Step {sample['step']:,}, {seconds_text(sample['seconds'])}.",
        more(sample["left_out"], "shorter slice is left out", "shorter slices are left out"),
        more(hidden, "further device is not drawn", "further devices are not drawn"),
    )
    note = f'<p class="note">{escape(" ".join(filter(None, notes)))}</p>'
    picture = svg(_WIDTH, y + 2, parts, "What each device did in one step")
    return (
        picture + _legend({role for row in sample["slices"] for role in _roles(row, roles)}) + note
    )


def _stacked(slices: Sequence[Sequence[Any]]) -> list[tuple[int, Sequence[Any]]]:
    """Give every slice a row: tasks above their operators, without overlaps."""
    ends: list[float] = []
    placed: list[tuple[int, Sequence[Any]]] = []
    tasks = [row for row in slices if row[2] == "task"]
    for group in (tasks, [row for row in slices if row[2] != "task"]):
        base = len(ends)
        for row in sorted(group, key=lambda row: row[5]):
            free = (i for i in range(base, len(ends)) if ends[i] <= row[5] + 1e-9)
            at = next(free, len(ends))
            if at == len(ends):
                ends.append(0.0)
            ends[at] = row[6]
            placed.append((at, row))
    return placed


def _roles(row: Sequence[Any], of_tasks: _Tasks) -> Mapping[str, int]:
    """The roles of a slice: its own, else those of its task, else its kind."""
    _, role, kind, name, key, _, _ = row
    if role or kind == "transfer":
        return {role or "collective": 1}
    found = of_tasks.get(key)
    if found:
        return found if kind == "task" else {next(iter(found)): 1}
    return {"fetch" if kind == "fetch" or name.startswith("finish") else "feed": 1}


def _slice(row: Sequence[Any], of_tasks: _Tasks, x: float, y: float, width: float) -> str:
    device, _, kind, name, _, start, stop = row
    shown = "transfer" if kind == "transfer" else name.removesuffix(f"_dev{device}")
    text = fit(shown, width - 6, least=3)
    label = f'<text class="halo" x="{x + 3:.1f}" y="{y + 11:.1f}">{escape(text)}</text>'
    return (
        f"<g><title>{escape(f'{kind} {name}')}, {seconds_text(stop - start)}</title>"
        f"{framed(x, y, width, _BAR - 3, _roles(row, of_tasks))}{label if text else ''}</g>"
    )


def _legend(roles: set[str]) -> str:
    parts, x = [], 1.0
    for role, name in ROLE_NAMES.items():
        if role in roles:
            parts.append(framed(x, 2, 26, 13, {role: 1}))
            parts.append(f'<text x="{x + 32}" y="13">{name}</text>')
            x += 52 + len(name) * CHARACTER
    return svg(max(x, 1.0), 18, parts, "Legend")


def _ticks(span: float, scale: float, bottom: float) -> Iterable[str]:
    for value, text in time_ticks(span, 6):
        x = _LEFT + 4 + value * scale
        side = "end" if x > _WIDTH - 30 else "middle"
        yield f'<path class="rule" d="M{x:.1f} 18V{bottom - 4:.1f}"/>'
        yield f'<text class="faint {side}" x="{x:.1f}" y="13">{text}</text>'
