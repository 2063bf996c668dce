"""`dpexec.viz.passes`: the changes that every pass made to the graph."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from dpexec.viz.graphs.history import (
    REPLICATION,
    Member,
    Stage,
    batch_of,
    compilation_of,
    history,
)
from dpexec.viz.graphs.texts import (
    MemberTexts,
    exchanged,
    recorded_texts,
    replaced,
    texts_of_members,
)
from dpexec.viz.pages.load import FileError, as_graph
from dpexec.viz.pages.page_data import PassesData, PassNodeData, StageData
from dpexec.viz.pages.plot import MARGIN, Canvas, number, text_width, wrap
from dpexec.viz.pages.style import ROLE_NAMES
from dpexec.viz.pages.units import counted, tally, wrapped
from dpexec.viz.pages.view import View

from dpexec.engine.graph.kinds import KINDS
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.passes import PASSES, REWRITES
from dpexec.engine.strategy.strategies import BuildStrategy
from dpexec.engine.trace import Trace

_WIDTH = 1080.0
_DEVICES = 2  # further replicas do the same
_PITCHES = ((400, 12.0), (1600, 8.0), (1 << 40, 5.0))  # up to so many operators: pixels for each
_BARS = 4000  # operators; of more, equal ones side by side are drawn as one bar
_LINES = 2  # of the names of operators that were added, removed or changed
_STATES = ("unchanged", "added", "changed", "removed")


class Passes(View):
    """The operators that every pass added, removed and changed; each has one place in all stages.

    Args:
        title: Heading.
        members: The operators of all stages, by number.
        stages: The operators after every pass.
        notes: Further remarks for the reader.
        texts: Statements and listings of operators.
        off: Names of the passes that are switched off.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec import viz
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.layers.relu(fluid.data("x", [None, 2]))
        >>> viz.passes(main, devices=2).save("passes.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        title: str,
        members: Sequence[Member],
        stages: Sequence[Stage],
        notes: Sequence[str] = (),
        texts: MemberTexts | None = None,
        off: Sequence[str] = (),
    ) -> None:
        self.off = tuple(off)
        self.texts = texts or MemberTexts()
        self.title, self.members, self.stages = title, members, stages
        idle = [stage.name for stage in stages[1:] if not _busy(stage)]
        quiet = [f"changed nothing: {', '.join(idle)}"] if idle else []
        self.notes = [*notes, *quiet]

    def payload(self) -> PassesData:
        """Return the operators and the stages for the interactive page."""
        return {
            "type": "passes",
            "title": self.title,
            "notes": self.notes,
            "nodes": [self._node(member) for member in self.members],
            "lines": self.texts.lines,
            "listings": self.texts.listings,
            "declarations": self.texts.declarations,
            "stages": [
                self._stage(stage, before)
                for before, stage in zip([None, *self.stages], self.stages, strict=False)
            ],
        }

    def _stage(self, stage: Stage, before: Stage | None) -> StageData:
        same = stage.name == REPLICATION  # every operator becomes several
        found = {} if same else replaced(self.members, stage, before)
        made: StageData = {
            "name": stage.name,
            "note": stage.sentence,
            "added": stage.added,
            "removed": stage.removed,
            "changed": stage.changed,
            "replaced": list(found.items()),
        }
        if before is None or (stage.nodes, stage.links) != (before.nodes, before.links):
            made["nodes"], made["links"] = stage.nodes, sorted(stage.links)
        return made

    def _node(self, member: Member) -> PassNodeData:
        made: PassNodeData = {
            "id": member.id,
            "name": member.name,
            "detail": member.detail,
            "role": member.role,
            "device": member.device,
            "lines": [member.label, f"role: {ROLE_NAMES[member.role]}"],
        }
        if member.id in self.texts.line:
            made["line"] = self.texts.line[member.id]
        if member.id in self.texts.kernels:
            made["kernels"] = self.texts.kernels[member.id]
        return made

    @cached_property
    def svg(self) -> str:
        """A row for every pass that changed something: what it does, and a map of the operators."""
        return _Picture(self).svg()

    def counts(self) -> list[tuple[str, int, int]]:
        """Name of every pass, and the number of operators before and after it."""
        sizes = [len(stage.nodes) for stage in self.stages]
        names = [stage.name for stage in self.stages[1:]]
        return list(zip(names, sizes, sizes[1:], strict=False))

    def __str__(self) -> str:
        off = [f"switched off: {', '.join(self.off)}"] if self.off else []
        lines = wrapped(self.title, *self.notes, *off)
        pairs = pairwise(self.stages)
        for (last, stage), (name, before, after) in zip(pairs, self.counts(), strict=True):
            size = f"{before} → {after}" if before != after else f"{after}"
            said = [f"- {text}" for text in exchanged(self.members, stage, last)]
            lines += ["", f"{name}: {size} operators", *wrapped(stage.sentence, *said)]
        return "\n".join(lines)


def passes(
    source: Any,
    *,
    strategy: BuildStrategy | None = None,
    devices: int | None = None,
    title: str | None = None,
) -> Passes:
    """Show the changes that every pass made to a program's graph.

    Args:
        source: A Program, or a ParallelExecutor or CompiledProgram that ran: it is compiled once
            more. A Trace, or the path of a saved one, names what each pass changed, too.
        strategy: For a program: selects the passes; None for the defaults.
        devices: For a program: number of devices; None for CPU_NUM.
        title: Heading; None for one with the number of passes that changed something.

    Returns:
        A view: `.save("passes.html")`, or leave it at the end of a notebook cell.

    Raises:
        FileError: A damaged or foreign file, or one that names no passes.
        TypeError: The source has no passes.
        ValueError: The program has no operators.
        EnforceNotMet: The executor has not run yet.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec import viz
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), size=2))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> viz.passes(main, devices=2)
        <Passes: Passes · 1 of 2 changed the graph>
    """
    notes: tuple[str, ...] = ()
    off: list[str] = []
    if isinstance(source, (str, os.PathLike, Mapping, Trace)):
        data = as_graph(source)
        members, stages = _recorded(data)
        texts = recorded_texts(data, members)
        notes = ("only operators that a pass changed are named in the file",)
    elif isinstance(source, SSAGraph):
        raise TypeError(
            "a graph does not know the passes that made it: give the Program, or the "
            "ParallelExecutor or CompiledProgram"
        )
    else:
        compilation = compilation_of(source, strategy, devices)
        members, stages = history(compilation)
        texts = texts_of_members(members, stages, batch_of(source), bool(compilation.native))
        on = {stage.name for stage in stages}
        known = [*(step.name for step in REWRITES), *(step.name for step in PASSES)]
        off = [name for name in known if name not in on]
    ran = [stage for stage in stages[1:] if stage.name != REPLICATION]
    busy = sum(map(_busy, ran))
    return Passes(
        title or f"Passes · {busy} of {len(ran)} changed the graph",
        members,
        stages,
        notes,
        texts,
        off,
    )


def _busy(stage: Stage) -> bool:
    return bool(stage.added or stage.removed or stage.changed)


def _recorded(data: Mapping[str, Any]) -> tuple[list[Member], list[Stage]]:
    """The passes as a file records them: names of operators, but only of changed ones."""
    if not data.get("passes"):
        raise FileError("the file names no passes: save the trace of a run, or give the program")
    number: dict[str, int] = {}
    members: list[Member] = []

    def numbers(labels: Iterable[str]) -> tuple[int, ...]:
        for label in labels:
            if label not in number:
                number[label] = len(members)
                members.append(_named(len(members), label))
        return tuple(number[label] for label in labels)

    stages = [Stage("program", "The operators as they were written.", (), ())]
    present: dict[int, None] = {}
    for record in data["passes"]:
        added, removed, changed = (numbers(record[k]) for k in ("added", "removed", "changed"))
        present = {k: None for k in (*present, *added, *changed) if k not in removed}
        sentence = f"{counted(record['before'], 'operator')} before, {record['after']} after"
        stages.append(Stage(record["name"], sentence, tuple(present), (), added, removed, changed))
    return members, stages


def _named(number: int, label: str) -> Member:
    name, _, rest = label.partition(" -> ")
    written, _, where = rest.partition(" on ")
    kind = KINDS.get(name.removeprefix("fused_"))
    collective = kind is not None and kind.is_collective
    role = "collective" if collective else "backward" if name.endswith("_grad") else "forward"
    device = where.removeprefix("device ")
    place = None if collective else int(device) if device.isdigit() else 0
    return Member(number, name, written, role, place, label)


class _Picture:
    """Small multiples: the same operator has the same cell in every row."""

    def __init__(self, view: Passes) -> None:
        self.view = view
        order = _order(view.stages)
        devices = sorted({m.device for m in view.members if m.device is not None})
        notes = list(view.notes)
        if len(devices) > _DEVICES:
            notes.append(f"the maps show {_DEVICES} of {len(devices)} devices")
        self.canvas = Canvas(view.title, _WIDTH, notes)
        shown: list[int | None] = [*devices[:_DEVICES], None]
        blocks = {d: [k for k in order if view.members[k].device == d] for d in shown}
        self.blocks = {device: found for device, found in blocks.items() if found}
        count = sum(map(len, self.blocks.values()))
        self.pitch = next(pitch for most, pitch in _PITCHES if count <= most)
        self.is_crowded = count > _BARS
        self.columns = int((_WIDTH - 2 * MARGIN - 110) // self.pitch)

    def svg(self) -> str:
        canvas = self.canvas
        self._legend()
        before = 0
        for stage in self.view.stages:
            if stage is self.view.stages[0] or _busy(stage):
                self._row(stage, before)
            before = len(stage.nodes)
        canvas.y -= 8
        return canvas.svg()

    def _legend(self) -> None:
        canvas = self.canvas
        used = {member.role for member in self.view.members}
        canvas.legend([(role, name) for role, name in ROLE_NAMES.items() if role in used])
        x = MARGIN
        for state in _STATES:
            self._cells(
                {("optimize" if "optimize" in used else "forward", state): [(x, canvas.y)]}, 13
            )
            canvas.text(x + 20, canvas.y + 10.5, state, "faint")
            x += 38 + text_width(state)
        canvas.y += 30

    def _row(self, stage: Stage, before: int) -> None:
        canvas = self.canvas
        top = canvas.y
        count = len(stage.nodes)
        first = stage is self.view.stages[0]
        sizes = (
            counted(count, "operator") if first else f"{before:,} → {counted(count, 'operator')}"
        )
        canvas.y += 22
        canvas.text(MARGIN + 12, canvas.y, stage.name, "lane-name")
        canvas.text(_WIDTH - MARGIN - 12, canvas.y, sizes if count else "", "faint end")
        for line in wrap(stage.sentence, _WIDTH - 2 * MARGIN - 24):
            canvas.y += 17
            canvas.text(MARGIN + 12, canvas.y, line, "faint")
        for sign, ids in (("+", stage.added), ("−", stage.removed), ("~", stage.changed)):
            lines = wrap(self._types(ids), _WIDTH - 2 * MARGIN - 60)
            if len(lines) > _LINES:
                lines = [*lines[: _LINES - 1], f"{lines[_LINES - 1]} …"]
            for line in lines:
                canvas.y += 17
                canvas.text(MARGIN + 12, canvas.y, f"{sign} {line}")
                sign = " "
        canvas.y += 12
        self._map(stage)
        canvas.lane(MARGIN, top, _WIDTH - 2 * MARGIN, canvas.y - top)
        canvas.y += 12

    def _types(self, ids: Iterable[int]) -> str:
        return ", ".join(tally(self.view.members[k].name for k in ids))

    def _map(self, stage: Stage) -> None:
        canvas, pitch = self.canvas, self.pitch
        states = dict.fromkeys(stage.nodes, "unchanged")
        for state, ids in zip(
            _STATES[1:], (stage.added, stage.changed, stage.removed), strict=True
        ):
            states.update(dict.fromkeys(ids, state))
        cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for device, members in self.blocks.items():
            if not any(k in states for k in members):
                continue
            name = "collectives" if device is None else f"device {device}"
            canvas.text(MARGIN + 12, canvas.y + 9, name, "faint")
            for place, k in enumerate(members):
                if k in states:
                    x = MARGIN + 100 + place % self.columns * pitch
                    y = canvas.y + place // self.columns * pitch
                    cells.setdefault((self.view.members[k].role, states[k]), []).append((x, y))
            canvas.y += max(14.0, -(-len(members) // self.columns) * pitch) + 6
        self._cells(cells, pitch - 2)
        canvas.y += 4

    def _cells(
        self, cells: Mapping[tuple[str, str], Sequence[tuple[float, float]]], size: float
    ) -> None:
        """Squares: tinted, full, half full or crossed out; one path per state and role."""
        s = number(size)
        for (role, state), places in cells.items():
            spots = [(number(x), number(y)) for x, y in places]
            if self.is_crowded and state in ("unchanged", "added"):
                square = self._bars(places, size)
            else:
                square = "".join(f"M{x} {y}h{s}v{s}h-{s}z" for x, y in spots)
            if state == "added":
                self.canvas.path(square, f"r-{role} solid")
            elif state == "removed":
                cross = "".join(f"M{x} {y}l{s} {s}m0 -{s}l-{s} {s}" for x, y in spots)
                self.canvas.path(square + cross, f"cell gone c-{role} curve")
            else:
                self.canvas.path(square, f"cell r-{role}")
            if state == "changed":
                half = "".join(f"M{x} {y}l{s} {s}h-{s}z" for x, y in spots)
                self.canvas.path(half, f"r-{role} solid")

    def _bars(self, places: Sequence[tuple[float, float]], size: float) -> str:
        """Rectangles, one for each run of adjacent squares."""
        drawn: list[str] = []
        s, (left, top), last = number(size), places[0], places[0][0]
        for x, y in [*places[1:], (math.inf, math.inf)]:
            if y != top or x != last + self.pitch:
                w = number(last - left + size)
                drawn.append(f"M{number(left)} {number(top)}h{w}v{s}h-{w}z")
                left, top = x, y
            last = x
        return "".join(drawn)


def _order(stages: Sequence[Stage]) -> list[int]:
    """The operators of all stages in one order; an added operator follows its neighbour."""
    order: list[int] = list(stages[0].nodes)
    for stage in stages[1:]:
        known = set(order)
        after: dict[int, list[int]] = {}
        previous = -1
        for k in (*stage.nodes, *stage.removed):
            if k not in known:
                after.setdefault(previous, []).append(k)
            else:
                previous = k
        order = [*after.get(-1, ()), *(m for k in order for m in (k, *after.get(k, ())))]
    return order
