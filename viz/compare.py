"""`dpexec.viz.compare`: two runs of the same network, operator by operator."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.measured.typical import Typical
from dpexec.viz.pages.load import as_trace
from dpexec.viz.pages.page_data import CompareData
from dpexec.viz.pages.plot import MARGIN, Canvas, text_width
from dpexec.viz.pages.units import counted, cut, percent, seconds_text, time_ticks
from dpexec.viz.pages.view import View

from dpexec.engine.trace import Trace

_Key = tuple[Any, ...]

_RELATED = 0.1
"""The part of all operators that two runs of one network have in common at least."""


@dataclass(frozen=True)
class Change:
    """What an operator took per step in both runs.

    Args:
        name: The operator, and what it makes.
        device: Where it runs; None for all devices.
        before: Seconds per step in the first run, the median of its steps.
        after: The same in the second run.
        noise: How far steps of the same run lie apart: the median distance from the median, of both
            runs together.
        nodes: Its numbers in the graph of the first run.
    """

    name: str
    device: int | None
    before: float
    after: float
    noise: float
    nodes: tuple[int, ...]

    @property
    def difference(self) -> float:
        """Seconds per step that it takes longer in the second run."""
        return self.after - self.before

    @property
    def ratio(self) -> float | None:
        """How many times longer it takes; None if it took no time before."""
        return self.after / self.before if self.before else None

    @property
    def certain(self) -> float:
        """The part of the difference that noise does not explain, without its sign."""
        return max(0.0, abs(self.difference) - 2 * self.noise)

    @property
    def label(self) -> str:
        """The operator with its device."""
        return _label(self.name, self.device)


@dataclass(frozen=True)
class Lone:
    """An operator of one run that has no partner in the other one.

    Args:
        name: The operator, and what it makes.
        device: Where it runs; None for all devices.
        seconds: What it took per step.
    """

    name: str
    device: int | None
    seconds: float

    @property
    def label(self) -> str:
        """The operator with its device."""
        return _label(self.name, self.device)


def _label(name: str, device: int | None) -> str:
    return name if device is None else f"{name} · device {device}"


class Comparison(View):
    """Two runs side by side, the largest difference first.

    Args:
        before: The first run.
        after: The second run.
        names: What the runs are called.

    Raises:
        ValueError: A trace is empty.
    """

    def __init__(
        self, before: Trace, after: Trace, names: tuple[str, str] = ("before", "after")
    ) -> None:
        runs = Schedule(before), Schedule(after)
        self.names = names
        self.steps = tuple(statistics.median(s.seconds for s in run.counted) for run in runs)
        one, other = (_per_step(run) for run in runs)
        changes = [_change(key, one[key], other[key]) for key in one if key in other]
        changes.sort(key=lambda change: (-change.certain, -abs(change.difference)))
        self.changes = tuple(changes)
        self.only_before = _lone(one, other)
        self.only_after = _lone(other, one)
        self.title = (
            f"{names[1]} against {names[0]} · step {seconds_text(self.steps[0])} → "
            f"{seconds_text(self.steps[1])}"
        )

    @cached_property
    def svg(self) -> str:
        """The largest differences as an SVG document."""
        return render(self)

    @property
    def notes(self) -> list[str]:
        """Sentences that say what the figures are, and the result."""
        before, after = self.steps
        same, all_ = len(self.changes), len(self.changes) + len(self.only_before)
        if same < _RELATED * (all_ + len(self.only_after)):
            return [
                f"These seem to be runs of different networks: of {counted(all_, 'operator')} of "
                f"{self.names[0]} and {same + len(self.only_after)} of {self.names[1]} "
                f"{same} do the same, by what they make and where. Their steps are not compared."
            ]
        notes = [
            "Time per step, medians over the steps of each run; what noise does not explain comes "
            "first. Operators meet by what they make and where."
        ]
        if before:
            change = percent(abs(after / before - 1))
            more = "less" if after < before else "more"
            took = "as long" if before == after else f"{change} {more} time"
            notes.insert(0, f"A step takes {took}.")
        lone = len(self.only_before), len(self.only_after)
        if any(lone):
            notes.append(
                f"Only in {self.names[0]}: {counted(lone[0], 'operator')}; only in "
                f"{self.names[1]}: {lone[1]}."
            )
        return notes

    def payload(self) -> CompareData:
        """Return what the interactive page draws."""
        one, other = (
            {"name": name, "step": step} for name, step in zip(self.names, self.steps, strict=True)
        )
        return {
            "type": "compare",
            "title": self.title,
            "notes": self.notes,
            "sides": (one, other),
            "rows": [(c.label, c.before, c.after, c.nodes) for c in self.changes],
            "unmatched": (
                [lone.label for lone in self.only_before],
                [lone.label for lone in self.only_after],
            ),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "names": list(self.names),
            "steps": list(self.steps),
            "changes": [asdict(change) for change in self.changes],
            "only": [[asdict(x) for x in self.only_before], [asdict(x) for x in self.only_after]],
        }

    def __str__(self) -> str:
        lines = [self.title, *self.notes, ""]
        labels = [cut(change.label, _LONGEST) for change in self.changes[:_ROWS]]
        width = max(map(len, labels), default=0)
        for change, label in zip(self.changes, labels, strict=False):
            ratio = "" if change.ratio is None else f"  ×{change.ratio:.2f}"
            lines.append(
                f"{label:<{width}}  {seconds_text(change.before):>9} → "
                f"{seconds_text(change.after):>9}{ratio}"
            )
        lines += _rest(self.changes)
        for name, lone in zip(self.names, (self.only_before, self.only_after), strict=True):
            lines += [
                f"only in {name}: {cut(x.label, _LONGEST)}, {seconds_text(x.seconds)}"
                for x in lone[:_ROWS]
            ]
            lines += _rest(lone)
        return "\n".join(lines)


@dataclass
class _Times:
    """What an operator took, step by step."""

    name: str
    device: int | None
    seconds: list[float]
    nodes: dict[int, None]


def _per_step(schedule: Schedule) -> dict[_Key, _Times]:
    """Seconds of each operator in each step that it runs in, by what it is."""
    found: dict[_Key, _Times] = {}
    for step in schedule.counted:
        seen: dict[_Key, int] = {}
        sums: dict[_Key, float] = {}
        for index in step.slices:
            piece = schedule.by_id[index]
            if not piece.is_leaf_work:
                continue
            key, name = _identity(schedule, piece)
            if schedule.nodes_of(piece) == ():  # nothing tells those of one name apart
                seen[key] = seen.get(key, 0) + 1
                key = (*key, seen[key])
            sums[key] = sums.get(key, 0.0) + piece.own
            row = found.setdefault(key, _Times(name, piece.event.device, [], {}))
            row.nodes.update(dict.fromkeys(schedule.nodes_of(piece)))
        for key, seconds in sums.items():
            found[key].seconds.append(seconds)
    return found


def _identity(schedule: Schedule, piece: Slice) -> tuple[_Key, str]:
    """What an operator is in any run of the network, and what it is called."""
    event, nodes = piece.event, schedule.nodes_of(piece)
    if schedule.facts is None or not nodes:
        return (event.kind, event.name, event.device), event.name
    made = tuple(schedule.facts.signatures[node] for node in nodes)
    label = schedule.facts.label(nodes[-1])
    if len(nodes) > 1:
        label = f"{event.name} → {label.split(' → ')[-1]}"
    return (event.device, *made), label


def _change(key: _Key, one: _Times, other: _Times) -> Change:
    before, after = Typical.of(one.seconds), Typical.of(other.seconds)
    noise = before.spread + after.spread
    return Change(one.name, one.device, before.median, after.median, noise, tuple(one.nodes))


def _lone(mine: dict[_Key, _Times], other: dict[_Key, _Times]) -> tuple[Lone, ...]:
    found = [
        Lone(times.name, times.device, statistics.median(times.seconds))
        for key, times in mine.items()
        if key not in other
    ]
    return tuple(sorted(found, key=lambda lone: -lone.seconds))


def _rest(rows: Sequence[Any]) -> list[str]:
    """A line that says how many rows are not shown, if there are any."""
    return [f"and {len(rows) - _ROWS} more"] if len(rows) > _ROWS else []


def compare(before: Any, after: Any, *, names: Sequence[str] | None = None) -> Comparison:
    """Compare two runs of the same network by operator; they may differ in the number of steps.

    Args:
        before: A Trace, an executor that recorded one, or the path of a saved one.
        after: The same for the second run.
        names: What the runs are called; None for the names of the files, else "before", "after".

    Returns:
        A view: differences beyond noise first; operators without a partner are listed.

    Raises:
        FileError: A file is damaged, empty, or no trace.
        ValueError: Not two names.
    """
    if names is None:
        names = _names((before, after))
    if len(names) != 2:
        raise ValueError(f"compare takes two names, not {len(names)}")
    return Comparison(as_trace(before), as_trace(after), (names[0], names[1]))


def _names(sources: Iterable[Any]) -> list[str]:
    paths = [os.path.basename(s) if isinstance(s, (str, os.PathLike)) else None for s in sources]
    found = [
        str(path) if path is not None else default
        for path, default in zip(paths, ("before", "after"), strict=True)
    ]
    return found if found[0] != found[1] else ["before", "after"]


_WIDTH = 1100.0
_ROWS = 20
_BAR = 9.0
_LONGEST = 52  # characters of a label
_FIGURES = 190.0  # pixels right of the bars


def render(found: Comparison) -> str:
    """Return a comparison as the text of an SVG document."""
    shown = found.changes[:_ROWS]
    canvas = Canvas(found.title, _WIDTH, found.notes)
    canvas.y += 4
    canvas.legend([("feed", found.names[0]), ("backward", found.names[1])])
    _bars(canvas, shown)
    if len(found.changes) > len(shown):
        canvas.y += 16
        canvas.text(MARGIN, canvas.y, f"and {len(found.changes) - len(shown)} more", "faint")
    for name, lone in zip(found.names, (found.only_before, found.only_after), strict=True):
        _alone(canvas, name, lone)
    return canvas.svg()


def _bars(canvas: Canvas, shown: Sequence[Change]) -> None:
    labels = [cut(change.label, _LONGEST) for change in shown]
    left = MARGIN + max((text_width(label, 11) for label in labels), default=0.0) + 12
    width = _WIDTH - left - MARGIN - _FIGURES
    highest = max((max(c.before, c.after) for c in shown), default=0.0)
    if highest:
        height = len(shown) * (2 * _BAR + 10)
        canvas.lane(left, canvas.y, width, height)
        for change, label in zip(shown, labels, strict=True):
            y = canvas.y + 5
            canvas.text(left - 8, y + _BAR + 4, label, "tick end")
            for place, (seconds, role) in enumerate(
                ((change.before, "feed"), (change.after, "backward"))
            ):
                bar = seconds / highest * width
                canvas.bar(left, y + place * _BAR, bar, _BAR, role, seconds_text(seconds))
            ratio = "" if change.ratio is None else f"  ×{change.ratio:.2f}"
            figures = f"{seconds_text(change.before)} → {seconds_text(change.after)}{ratio}"
            canvas.text(left + width + 10, y + _BAR + 4, figures, "tick")
            canvas.y += 2 * _BAR + 10
        places = [(at / highest, label) for at, label in time_ticks(highest, 8)]
        canvas.axis_below(left, width, places)


def _alone(canvas: Canvas, name: str, lone: Sequence[Lone]) -> None:
    """Operators of one run that the other one does not have."""
    if not lone:
        return
    canvas.y += 26
    canvas.text(MARGIN, canvas.y, f"only in {name}", "lane-name")
    for item in lone[:_ROWS]:
        canvas.y += 17
        text = f"{cut(item.label, _LONGEST)}, {seconds_text(item.seconds)}"
        canvas.text(MARGIN + 12, canvas.y, text, "tick")
    if len(lone) > _ROWS:
        canvas.y += 17
        canvas.text(MARGIN + 12, canvas.y, f"and {len(lone) - _ROWS} more", "faint")
