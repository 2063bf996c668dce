"""The static picture of a timeline: one step, a row per device and thread."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dpexec.viz.advising.analysis import device_uses
from dpexec.viz.measured.critical_path import critical_path
from dpexec.viz.measured.failures import failures
from dpexec.viz.measured.schedule import Schedule, Slice, Step
from dpexec.viz.measured.shares import DeviceUse
from dpexec.viz.pages.plot import MARGIN, Canvas, text_width
from dpexec.viz.pages.style import ROLE_NAMES
from dpexec.viz.pages.units import percent, seconds_text, time_ticks
from dpexec.viz.pages.words import PARTS

_WIDTH = 1180.0
_LABELS = 96.0  # pixels left of the rows, for the names of threads
_TASK, _OP, _DEEPER = 16.0, 20.0, 8.0  # heights of nested slices
_ROW_GAP = 8.0


def render(schedule: Schedule, step: Step, title: str) -> str:
    """Return the picture of a step as the text of an SVG document."""
    return _Gantt(schedule, step, title).text()


def summary(use: DeviceUse) -> str:
    """Return how a device spent its time, largest part first."""
    parts = sorted(use.parts.items(), key=lambda item: -item[1])
    return ", ".join(f"{percent(v)} {PARTS[name]}" for name, v in parts if v >= 0.0005)


class _Gantt:
    def __init__(self, schedule: Schedule, step: Step, title: str) -> None:
        self.schedule, self.step = schedule, step
        self.pieces = [schedule.by_id[index] for index in step.slices]
        done = step in schedule.steps
        self.path = set(critical_path(schedule, step.number).slices) if done else set()
        self.left = MARGIN + _LABELS
        self.width = _WIDTH - self.left - MARGIN
        self.per_second = self.width / step.seconds if step.seconds else 0.0
        self.merged = 0
        notes = [f"This is step {step.number}, the typical one."] if len(schedule.steps) > 1 else []
        notes += [one.text for one in failures(schedule) if one.step == step]
        slivers = sum(p.event.duration * self.per_second < 1 for p in self.pieces)
        if slivers:
            notes.append(
                f"{slivers} of {len(self.pieces)} slices are narrower than a pixel; those in the "
                "same pixel are drawn as one."
            )
        self.canvas = Canvas(title, _WIDTH, notes)

    def text(self) -> str:
        canvas = self.canvas
        canvas.y += 4
        used = {self.schedule.role_of(piece) for piece in self.pieces}
        items = [(role, name) for role, name in ROLE_NAMES.items() if role in used]
        named = {"collective": "communication (hatched)"}
        canvas.legend([*((r, named.get(r, n)) for r, n in items), ("", "critical path")])
        uses: dict[int | None, DeviceUse] = {
            use.device: use
            for use in device_uses(self.schedule, [self.step])
            if self.step in self.schedule.steps
        }
        rows = {p.track for p in self.pieces}
        tracks = [(n, t) for n, t in enumerate(self.schedule.tracks) if n in rows]
        for group, members in groupby(tracks, key=lambda item: item[1].group):
            listed = list(members)
            self._heading(group, uses.get(listed[0][1].device))
            for index, track in listed:
                self._row(index, track.name)
            canvas.y += 6
        seconds = self.step.seconds
        places = [(at / seconds if seconds else 0.0, text) for at, text in time_ticks(seconds)]
        canvas.axis_below(self.left, self.width, places)
        return canvas.svg()

    def _heading(self, group: str, use: DeviceUse | None) -> None:
        canvas = self.canvas
        canvas.y += 13
        canvas.text(MARGIN, canvas.y, group, "lane-name")
        if use is not None:
            canvas.text(self.left, canvas.y, summary(use), "faint")
        canvas.y += 8

    def _row(self, track: int, name: str) -> None:
        pieces = [piece for piece in self.pieces if piece.track == track]
        depths = max(piece.depth for piece in pieces)
        heights = [_TASK if depths else _OP, _OP, *[_DEEPER] * (depths - 1)][: depths + 1]
        canvas = self.canvas
        canvas.lane(self.left, canvas.y, self.width, sum(heights))
        canvas.text(self.left - 8, canvas.y + sum(heights) / 2 + 4, name, "small end")
        for depth, height in enumerate(heights):
            self._strip([p for p in pieces if p.depth == depth], height)
            canvas.y += height
        canvas.y += _ROW_GAP

    def _x(self, seconds: float) -> float:
        return self.left + (seconds - self.step.start) * self.per_second

    def _strip(self, pieces: Sequence[Slice], height: float) -> None:
        """Draw slices that do not overlap; slices in the same pixel become one."""
        slivers: list[Slice] = []
        for piece in pieces:
            width = piece.event.duration * self.per_second
            if width >= 1:
                self._slivers(slivers, height)
                slivers = []
                self._slice(piece, width, height)
                continue
            if slivers and int(self._x(slivers[0].event.start)) != int(self._x(piece.event.start)):
                self._slivers(slivers, height)
                slivers = []
            slivers.append(piece)
        self._slivers(slivers, height)

    def _slice(self, piece: Slice, width: float, height: float) -> None:
        event, canvas = piece.event, self.canvas
        x, y = self._x(event.start), canvas.y
        hint = f"{event.name}: {seconds_text(event.duration)} from {self._when(event.start)}"
        canvas.bar(x + 0.5, y + 0.5, width - 1, height - 1, self.schedule.role_of(piece), hint)
        if piece.id in self.path:
            canvas.box(x, y + height - 3.5, width, 3.5, "critical")
        label = event.name.split("-")[0] if event.kind == "task" else event.name
        if height >= _TASK and width > text_width(label, 10) + 6:
            backed = self.schedule.role_of(piece) == "collective"
            if backed:  # letters on hatching would be hard to read
                half = text_width(label, 10) / 2 + 2
                canvas.box(x + width / 2 - half, y + 2, 2 * half, height - 6, "lane")
            canvas.text(x + width / 2, y + height / 2 + 2.5, label, "small middle")

    def _slivers(self, pieces: Sequence[Slice], height: float) -> None:
        if not pieces:
            return
        times: dict[str, float] = {}
        for piece in pieces:
            role = self.schedule.role_of(piece)
            times[role] = times.get(role, 0.0) + piece.event.duration
        role = max(times, key=times.__getitem__)
        first, total = pieces[0], sum(times.values())
        count = f"{len(pieces)} slices" if len(pieces) > 1 else first.event.name
        hint = f"{count}: {seconds_text(total)} from {self._when(first.event.start)}"
        x = self._x(first.event.start)
        self.canvas.bar(x, self.canvas.y + 0.5, total * self.per_second, height - 1, role, hint)
        if any(piece.id in self.path for piece in pieces):
            self.canvas.box(x, self.canvas.y + height - 3.5, 1, 3.5, "critical")

    def _when(self, seconds: float) -> str:
        return seconds_text(seconds - self.step.start)
