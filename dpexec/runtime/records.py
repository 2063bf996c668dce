"""What steps recorded, and how it becomes events.

A step leaves numbers: the times that were noted. The layout of the plan says what they mean; it
holds no code, so that it can be sent to another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpexec.graph.describe import task_key
from dpexec.graph.ssa import OpNode
from dpexec.ir.parts import parts_of as fused_parts
from dpexec.ir.spec import Spec
from dpexec.runtime.memory_use import Life, bytes_of
from dpexec.runtime.partition import Task
from dpexec.runtime.plan import Plan
from dpexec.runtime.steps import Step
from dpexec.trace.events import Allocation, Kind
from dpexec.trace.recorder import Row

__all__ = [
    "Around",
    "Inner",
    "Layout",
    "Marks",
    "Ran",
    "StepRecord",
    "TaskSpans",
    "marks_of",
    "stamps_of",
]

_NANO = 1e-9
Ran = tuple[float, float, int]
"""Start and end in nanoseconds, and the thread."""

Span = tuple[list[OpNode], float, float, tuple[int, int]]
"""Nodes whose work was done together, start and end in nanoseconds, and which share of it this is:
several threads may divide the work."""

TaskSpans = tuple[Task, Ran, list[Span]]
"""A task, when it ran, and what it did."""

Around = tuple[str, Kind, float, float, int, dict[str, Any]]
"""Name, kind, start and end in nanoseconds, thread, facts."""

Marks = list[list[tuple[int, list[tuple[list[int], int]]]]]
"""By task and step: how many rows its code has (-1: it is no code), and the numbers of the nodes
whose work is done together, each with the row behind it."""


def marks_of(steps: Sequence[Sequence[Step]]) -> Marks:
    """What the steps of tasks note."""
    return [
        [
            (-1, [([step.node.id], 0)])
            if step.code is None
            else (
                step.code.rows,
                [([part.node.id for part in parts], end) for parts, end in step.code.parts],
            )
            for step in bound
        ]
        for bound in steps
    ]


class Layout:
    """What the numbers mean that the steps of a plan note.

    Args:
        plan: the plan.
        specs: of every value of a run, per device.
        marks: what its steps note.

    Attributes:
        width: how many numbers they are.
        size: number of events of a step.
        facts: what events say of a node whenever it runs.
    """

    def __init__(self, plan: Plan, specs: Sequence[Mapping[str, Spec]], marks: Marks) -> None:
        self.plan = plan
        self._marks = marks
        self.width = sum(_width(rows) for found in marks for rows, _ in found)
        parts = sum(len(groups) for found in marks for _, groups in found)
        self.size = 2 + len(plan.tasks) + parts
        self.facts = {node: _facts(node, plan, specs) for node in plan.nodes}

    def tasks(self, stamps: np.ndarray[Any, Any], ran: Sequence[Ran | None]) -> Iterator[TaskSpans]:
        """The tasks that ran, with what they did."""
        at = 0
        for task, marks, times in zip(self.plan.tasks, self._marks, ran, strict=True):
            if times is not None:
                yield task, times, self._spans(marks, stamps, at, times[0])
            at += sum(_width(rows) for rows, _ in marks)

    def _spans(
        self, marks: Any, stamps: np.ndarray[Any, Any], at: int, before: float
    ) -> list[Span]:
        """What the steps of a task did; a step of Python began when what was before it ended."""
        nodes = self.plan.graph.ops
        spans: list[Span] = []
        for rows, groups in marks:
            noted = stamps[at : at + _width(rows)]
            at += len(noted)
            if rows < 0:
                times, first = [before, float(noted[0])], 0
                groups = [(groups[0][0], 1)]
            else:
                times, first = stamps_of(noted).tolist(), 0
            for numbers, end in groups:
                spans.append(([nodes[n] for n in numbers], times[first], times[end], (1, 1)))
                first = end
            before = spans[-1][2]
        return spans


def _width(rows: int) -> int:
    """How many numbers a step notes."""
    return 1 if rows < 0 else rows + 3


def stamps_of(noted: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The times in whole nanoseconds that :func:`machine.run_timed` noted.

    Args:
        noted: what it wrote, ``(n + 3,)`` for n rows.

    Returns:
        The begin and the end of every row, ``(n + 1,)``.
    """
    ticks = (noted[1:-1] - noted[1]).astype(np.float64)
    return np.rint(noted[0] + ticks * ((noted[-1] - noted[0]) / max(ticks[-1], 1.0)))


@dataclass(frozen=True, slots=True)
class Inner:
    """An operator of a body that ran once."""

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
        layout: of what ran.
        lives: the values of a step that take memory.
        tasks: gives the tasks that ran.
        inner: operators of bodies.
        around: further events: what was fed and fetched.
        worker: where it ran; None for this process.
        shift: seconds to add to all times, for another process's clock.
    """

    layout: Layout
    lives: Callable[[], Iterable[Life]]
    tasks: Callable[[], Iterator[TaskSpans]]
    inner: Sequence[Inner] = ()
    around: Sequence[Around] = ()
    worker: str | None = None
    shift: float = 0.0

    def rows(self) -> Iterator[Row]:
        """The events: tasks, what they did, and what was fed and fetched."""
        where = {"worker": self.worker} if self.worker else {}
        for name, what, first, last, thread, facts in self.around:
            yield (name, what, None, name, *self._seconds(first, last), thread, facts, None)
        for task, (start, stop, thread), spans in self.tasks():
            key, seconds = task_key(task), self._seconds(start, stop)
            yield (task.key[0], "task", task.device, key, *seconds, thread, where, None)
            for nodes, begin, end, share in spans:
                name, facts = self._about(nodes, share)
                kind = "collective" if nodes[0].is_collective else "op"
                seconds = self._seconds(begin, end)
                about = {**where, **facts}
                yield (name, kind, nodes[0].device, key, *seconds, thread, about, nodes[0].id)
        for item in self.inner:
            key, device = task_key(item.task), item.node.device
            seconds = item.start + self.shift, item.stop + self.shift
            facts = {**where, "inside": item.node.name}
            yield (item.name, "op", device, key, *seconds, item.thread, facts, None)

    def _about(self, nodes: list[OpNode], share: tuple[int, int]) -> tuple[str, dict[str, Any]]:
        """What an event says of nodes whose work was done together."""
        facts = self.layout.facts[nodes[0]]
        if len(nodes) > 1:
            facts = {**facts, "parts": [name for node in nodes for name in parts_of(node)]}
        if share != (1, 1) and "bytes" in facts:
            facts = {**facts, "bytes": facts["bytes"] * share[0] // share[1]}
        return "+".join(node.name for node in nodes), facts

    def _seconds(self, start: float, stop: float) -> tuple[float, float]:
        return start * _NANO + self.shift, max(start, stop) * _NANO + self.shift

    def allocations(self) -> Iterator[Allocation]:
        """The memory that was taken and given back."""
        times: dict[OpNode, tuple[float, float]] = {}
        for _, _, spans in self.tasks():
            for nodes, begin, end, _ in spans:
                for node in nodes:
                    before = times.get(node, (begin, end))
                    times[node] = min(before[0], begin), max(before[1], end)
        if not times:
            return
        first = min(begin for begin, _ in times.values())
        last = max(end for _, end in times.values())
        for life in self.lives():
            if life.first is not None and life.first not in times:
                continue
            begin = first if life.first is None else times[life.first][0]
            end = max((times[node][1] for node in life.last if node in times), default=last)
            if life.heir in times:
                end = times[life.heir][0]
            begin, end = self._seconds(begin, end)
            yield Allocation(begin, life.device, life.name, life.bytes, life.kind)
            yield Allocation(end, life.device, life.name, -life.bytes, life.kind)


def parts_of(node: OpNode) -> list[str]:
    """The names of the operators that a node stands for: its own, or those that were fused."""
    op = node.op
    if op is None or node.kind != "compute":
        return [node.name]
    if "functor_list" in op.attrs:
        return [name.partition(",")[0] for name in op.attrs["functor_list"]]
    if op.type == "fusion_group":
        return [part.type for part in fused_parts(op.attrs["parts"], op.attrs["results"])]
    if op.type.startswith("fused_batch_norm_act"):
        grad = "_grad" * op.type.endswith("_grad")
        names = [f"batch_norm{grad}", f"{op.attrs['act_type']}{grad}"]
        return names[::-1] if grad else names
    if op.type.startswith("fused_") and "Param" in op.inputs:
        return [op.type.removeprefix("fused_")] * len(op.inputs["Param"])
    return [node.name]


def _facts(node: OpNode, plan: Plan, specs: Sequence[Mapping[str, Spec]]) -> dict[str, Any]:
    """What an event says of a node whenever it runs."""
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
        size = bytes_of(specs[device].get(name))
        if size is None:
            return None
        total += size
    return total
