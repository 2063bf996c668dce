"""From the numbers that steps recorded to events of a trace.

A step leaves numbers: the times that it noted. A :class:`NoteLayout` says what they mean. It holds
no code, so it can be sent to another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.bindings.memory_use import Life
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.graph.describe import task_key
from dpexec.engine.graph.parts import parts_of
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.spec import Spec
from dpexec.engine.kernels import stamps
from dpexec.engine.trace.events import Allocation, Kind, tick
from dpexec.engine.trace.recorder import Row

__all__ = [
    "NOT_MEASURED",
    "Around",
    "Inner",
    "Mark",
    "Marks",
    "Moved",
    "NodeRows",
    "NoteLayout",
    "Ran",
    "StepRecord",
    "TaskSpans",
    "allocations_of",
    "marks_of",
    "spans_of",
]

_NANO = 1e-9
Ran = tuple[float, float, int]
"""Start and end in nanoseconds, and the thread."""

Share = tuple[int, int]
"""The part of nodes' work that a thread did, as a fraction (numerator, denominator)."""

NodeRows = tuple[list[OpNode], int, Share]
"""Nodes whose work is done together, the row of code after their last one, and their share."""

Span = tuple[list[OpNode], float, float, Share, float | None]
"""Nodes whose work was done together, start and end in nanoseconds, their share, and the
nanoseconds of processor time; None where that is not measured: in machine code and on GPUs."""

NOT_MEASURED = -1
"""What is noted instead of processor time where the times are not those of a thread."""

_IDLE = 20_000
_IDLE_SHARE = 0.05
"""An event says its processor time if it was without a core for more nanoseconds, and a larger
share of its time: all others would make files larger and say nothing."""

TaskSpans = tuple[Task, Ran, list[Span]]
"""A task, when it ran, and what it did."""

Moved = dict[int, dict[str, int]]
"""By id of a collective, its bytes by what happened to them. Collectives among processes also have
the nanoseconds that they "waited" for other processes, or the nanoseconds "awaited" between their
own values and the first sum, and "rank" and "replica" of the process that came last."""

NodeTimes = dict[OpNode, tuple[float, float]]
"""By node, when its work began and ended, in seconds."""

Around = tuple[str, Kind, float, float, int, dict[str, Any]]
"""Name, kind, start and end in nanoseconds, thread, facts."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a step notes.

    Args:
        rows: how many rows its code has; None: it is a call of Python, which notes when it ended,
            and its processor time.
        parts: ids of the nodes whose work is done together, and the row after their last one.
    """

    rows: int | None
    parts: list[tuple[list[int], int]]

    @classmethod
    def of(cls, step: Step) -> Mark:
        """What a bound step notes."""
        if step.code is None:
            return cls(None, [([step.node.id], 1)])
        parts = [([done.node.id for done in steps], end) for steps, end in step.code.parts]
        return cls(step.code.rows, parts)

    @property
    def width(self) -> int:
        """How many numbers."""
        return 2 if self.rows is None else stamps.width(self.rows)


Marks = list[list[Mark]]
"""By task and step."""


def marks_of(steps: Sequence[Sequence[Step]]) -> Marks:
    """What the steps of tasks note.

    Args:
        steps: the bound steps of every task.
    """
    return [[Mark.of(step) for step in bound] for bound in steps]


def spans_of(parts: Iterable[NodeRows], times: Sequence[float]) -> list[Span]:
    """When parts of a table of code ran, one after another.

    Args:
        parts: what they are.
        times: the begin and the end of every row.
    """
    spans: list[Span] = []
    first = 0
    for nodes, end, share in parts:
        spans.append((nodes, times[first], times[end], share, None))
        first = end
    return spans


class NoteLayout:
    """The meaning of the numbers that the steps of a plan note.

    Args:
        plan: the plan that runs.
        specs: of every value of a run, per device.
        marks: the notes of its steps.

    Attributes:
        width: how many numbers a step of the plan notes.
        size: how many events they become.
        facts: by node, the facts of its events that are the same in every run.
    """

    def __init__(self, plan: Plan, specs: Sequence[Mapping[str, Spec]], marks: Marks) -> None:
        self.plan = plan
        self._marks = marks
        all_marks = [mark for bound in marks for mark in bound]
        self.width = sum(mark.width for mark in all_marks)
        self.size = 2 + len(plan.tasks) + sum(len(mark.parts) for mark in all_marks)
        self.facts = {node: _facts(node, plan, specs) for node in plan.nodes}

    def tasks(self, noted: np.ndarray[Any, Any], ran: Sequence[Ran | None]) -> Iterator[TaskSpans]:
        """The tasks that ran, with what they did.

        Args:
            noted: the numbers of a step, ``(width,)``.
            ran: when each task ran; None for those that did not run here.
        """
        at = 0
        for task, marks, times in zip(self.plan.tasks, self._marks, ran, strict=True):
            end = at + sum(mark.width for mark in marks)
            if times is not None:
                yield task, times, self._spans(marks, noted[at:end], times[0])
            at = end

    def progress(
        self, number: int, noted: np.ndarray[Any, Any], begin: float, now: float
    ) -> tuple[list[Span], OpNode | None]:
        """What a task that did not end has done, and the node that it was at.

        Args:
            number: of the task.
            noted: the numbers of the step, ``(width,)``; those of what did not end are older.
            begin: when the task began, in nanoseconds.
            now: a later time.
        """
        first = at = sum(mark.width for bound in self._marks[:number] for mark in bound)
        nodes, marks = self.plan.graph.ops, self._marks[number]
        for count, mark in enumerate(marks):
            last = at if mark.rows is None else at + mark.width - 1
            if noted[last] >= begin:
                at += mark.width
                continue
            spans, parts = self._spans(marks[:count], noted[first:at], begin), mark.parts
            if mark.rows is not None and noted[at] >= begin:  # the kernel of a row refused values
                ran, times = stamps.until_refusal(noted[at : at + mark.width], now)
                done = [([nodes[n] for n in ids], end, (1, 1)) for ids, end in parts if end <= ran]
                spans, parts = [*spans, *spans_of(done, times)], parts[len(done) :]
            return spans, nodes[parts[0][0][0]]
        return self._spans(marks, noted[first:at], begin), None

    def _spans(
        self, marks: Sequence[Mark], noted: np.ndarray[Any, Any], begin: float
    ) -> list[Span]:
        """What the steps of a task did; a step of Python began when the step before it ended."""
        nodes = self.plan.graph.ops
        spans: list[Span] = []
        for mark in marks:
            mine, noted = noted[: mark.width], noted[mark.width :]
            if mark.rows is None:
                ((ids, _),) = mark.parts
                start = spans[-1][2] if spans else begin
                busy = None if mine[1] == NOT_MEASURED else float(mine[1])
                spans.append(([nodes[n] for n in ids], start, float(mine[0]), (1, 1), busy))
                continue
            times = stamps.times_of(mine).tolist()
            parts = (([nodes[n] for n in ids], end, (1, 1)) for ids, end in mark.parts)
            spans.extend(spans_of(parts, times))
        return spans


@dataclass(frozen=True, slots=True)
class Inner:
    """One run of an operator of a block; times are in seconds."""

    name: str
    task: Task
    node: OpNode
    start: float
    stop: float
    thread: int


@dataclass(eq=False, slots=True)
class StepRecord:
    """What one step recorded.

    Args:
        layout: of the plan that ran.
        lives: gives the values of a step that take memory.
        tasks: gives the tasks that ran.
        inner: operators of blocks.
        around: further events: feeds, fetches, transfers.
        worker: the worker that ran it; None for this process.
        shift: seconds to add to all times, as another process has another clock.
        moved: by id of a collective, the bytes that it moved in this step, if they differ between
            steps.
        device: the device whose work it is; None: tasks say it. A collective that ends on one
            device is the work of all, each on its own worker.
    """

    layout: NoteLayout
    lives: Callable[[], Iterable[Life]]
    tasks: Callable[[], Iterator[TaskSpans]]
    inner: Sequence[Inner] = ()
    around: Sequence[Around] = ()
    worker: str | None = None
    shift: float = 0.0
    moved: Moved = field(default_factory=dict)
    device: int | None = None

    def rows(self) -> Iterator[Row]:
        """The events: tasks, what they did, and what was fed and fetched."""
        where = {"worker": self.worker} if self.worker else {}
        for name, what, first, last, thread, facts in self.around:
            yield (name, what, None, name, *self._seconds(first, last), thread, facts, None)
        for task, (start, stop, thread), spans in self.tasks():
            key, seconds = task_key(task), self._seconds(start, stop)
            here = None if task.device is None else self.device
            place = task.device if here is None else here
            yield (task.key[0], "task", place, key, *seconds, thread, where, None)
            for nodes, begin, end, share, busy in spans:
                name, facts = self._about(nodes, share)
                if busy is not None and end - begin - busy > max(
                    _IDLE, _IDLE_SHARE * (end - begin)
                ):
                    facts = {**facts, "busy": round(busy * _NANO, 6)}
                if nodes[0].id in self.moved:
                    facts = {**facts, **self._moved(nodes[0])}
                kind = "collective" if nodes[0].is_collective else "op"
                seconds = self._seconds(begin, end)
                about = {**where, **facts}
                place = nodes[0].device if here is None else here
                yield (name, kind, place, key, *seconds, thread, about, nodes[0].id)
        for item in self.inner:
            key, device = task_key(item.task), item.node.device
            seconds = item.start + self.shift, item.stop + self.shift
            facts = {**where, "inside": item.node.name}
            yield (item.name, "op", device, key, *seconds, item.thread, facts, None)

    def _moved(self, node: OpNode) -> dict[str, Any]:
        """What a collective moved, and how long it waited, for whom; nobody if it did not wait."""
        facts: dict[str, Any] = dict(self.moved[node.id])
        rank, replica = facts.pop("rank", None), facts.pop("replica", None)
        waits = {name: facts.pop(name) * _NANO for name in ("waited", "awaited") if name in facts}
        if any(waits.values()):
            facts.update((name, seconds) for name, seconds in waits.items() if seconds)
            who = "other trainers" if rank is None else f"trainer {rank}"
            facts["for"] = f"replica {replica}" if self.worker else who
        return facts

    def _about(self, nodes: list[OpNode], share: Share) -> tuple[str, dict[str, Any]]:
        """Name and facts of the event of nodes whose work was done together."""
        facts = self.layout.facts[nodes[0]]
        if len(nodes) > 1:
            facts = {**facts, "parts": [name for node in nodes for name in parts_of(node)]}
        if share != (1, 1) and "bytes" in facts:
            facts = {**facts, "bytes": facts["bytes"] * share[0] // share[1]}
        return "+".join(node.name for node in nodes), facts

    def _seconds(self, start: float, stop: float) -> tuple[float, float]:
        return start * _NANO + self.shift, max(start, stop) * _NANO + self.shift

    def times(self) -> NodeTimes:
        """When the work of every node that ran began and ended, in seconds of the trace."""
        times: NodeTimes = {}
        for _, _, spans in self.tasks():
            for nodes, begin, end, *_ in spans:
                begin, end = self._seconds(begin, end)
                for node in nodes:
                    before = times.get(node, (begin, end))
                    times[node] = min(before[0], begin), max(before[1], end)
        return times

    def allocations(self) -> Iterator[Allocation]:
        """The memory that was taken and given back."""
        return allocations_of(self.lives(), self.times())


def allocations_of(lives: Iterable[Life], times: NodeTimes) -> Iterator[Allocation]:
    """The memory that the values of a step took and gave back.

    Args:
        lives: the values.
        times: when the nodes of the step worked, on all processes that ran it.
    """
    if not times:
        return
    begins, ends = zip(*times.values(), strict=True)
    first, last = min(begins), max(ends)
    for life in lives:
        if life.first is not None and life.first not in times:
            continue
        begin = first if life.first is None else times[life.first][0]
        end = max((times[node][1] for node in life.last if node in times), default=last)
        if life.heir in times:
            end = times[life.heir][0]
        begin, end = tick(begin), tick(end)
        yield Allocation(begin, life.device, life.name, life.bytes, life.kind)
        yield Allocation(end, life.device, life.name, -life.bytes, life.kind)


def _facts(node: OpNode, plan: Plan, specs: Sequence[Mapping[str, Spec]]) -> dict[str, Any]:
    """The facts of a node's events that are the same in every run."""
    if not node.is_collective:
        parts = parts_of(node)
        return {"parts": parts} if len(parts) > 1 else {}
    sides = [
        [var for var in side if var.kind == "var" and var not in plan.missing]
        for side in (node.inputs, node.outputs)
    ]
    devices = sorted({var.device for side in sides for var in side})
    facts: dict[str, Any] = {"devices": devices}
    sizes = [_payload(side, specs) for side in sides]
    known = [size for size in sizes if size is not None]
    if known:
        facts["bytes"] = min(known)
    variables = list(dict.fromkeys(var.name for var in sides[1]))
    if len(variables) > 1:
        facts["variables"] = variables
    return facts


def _payload(side: Sequence[Any], specs: Sequence[Mapping[str, Spec]]) -> int | None:
    """The bytes of the variables of one side of a collective, each counted once."""
    total = 0
    for name, device in {var.name: var.device for var in side}.items():
        spec = specs[device].get(name)
        if spec is None or spec.nbytes is None:
            return None
        total += spec.nbytes
    return total
