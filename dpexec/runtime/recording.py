"""What a step records: when each task and operator ran, at next to no cost.

The steps of a binding exist a second time, made to note when they end: machine code notes the time
after each of its kernels, inside the one call without the GIL, so that a recorded step runs the
same code as any other. A step of Python is followed by one look at the clock. All times go to one
array, which is copied when the step is over; events are made of it when somebody asks for them.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.graph.describe import task_key
from dpexec.graph.ssa import OpNode
from dpexec.ir.parts import parts_of as fused_parts
from dpexec.ir.spec import Spec
from dpexec.runtime.env import Env
from dpexec.runtime.memory_use import Life, Measured, bytes_of, lives, measure
from dpexec.runtime.partition import Task
from dpexec.runtime.plan import Plan
from dpexec.runtime.steps import Step, run_steps
from dpexec.trace.events import Allocation, Kind
from dpexec.trace.recorder import Recorder, Row

if TYPE_CHECKING:
    from dpexec.runtime.binding import Binding
    from dpexec.runtime.code_step import CodeStep
    from dpexec.runtime.schedulers.crew import Crew

__all__ = ["Recording", "StepRecord", "TaskSpans", "parts_of"]

_NANO = 1e-9
Ran = tuple[float, float, int]
"""Start and end in nanoseconds, and the thread."""

Span = tuple[list[OpNode], float, float, tuple[int, int]]
"""Nodes whose work was done together, start and end in nanoseconds, and which share of it this is:
several threads may divide the work."""

TaskSpans = tuple[Task, tuple[float, float, int], list[Span]]
"""A task, start, end and thread, and what it did."""

_Around = tuple[str, Kind, int, int, int, dict[str, Any]]
"""Name, kind, start and end in nanoseconds, thread, facts."""


class Recording:
    """The steps of a binding, made to note when they run.

    Args:
        binding: the plan with its steps and specs.
    """

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        plan, steps, specs = binding.plan, binding.steps, binding.specs
        self.size = 2 + len(plan.tasks) + sum(1 for _ in _parts(steps))
        self.facts = {node: _facts(node, plan, specs) for node in plan.nodes}
        self._stamps = np.zeros(sum(map(_width, _flat(steps))), np.int64)
        self._measured: Measured = {}
        self._envs: Sequence[Env] = ()
        self._inner: list[_Inner] = []
        self._around: list[_Around] = []
        self._ran: list[Ran | None] = []
        self._noted: tuple[Any, ...] | None = None
        self.began = 0
        at = 0
        self._steps: list[list[Step]] = []
        for task, bound in zip(plan.tasks, steps, strict=True):
            self._steps.append([])
            for step in bound:
                self._steps[-1].append(self._noting(step, at, task))
                at += _width(step)

    def begin(self) -> None:
        """A step begins."""
        self._noted, self._ran = None, []
        self.began = time.perf_counter_ns()

    def begin_tasks(self) -> None:
        """The tasks of the step will run one by one; values have been fed."""
        self._inner, self._around = [], []
        self._ran = [None] * len(self._steps)
        self.note("Feed", "feed", self.began)

    def run(self, number: int, envs: Sequence[Env]) -> None:
        """Run a task.

        Raises:
            EnforceNotMet: a kernel failed.
        """
        self._envs = envs
        start = time.perf_counter_ns()
        run_steps(self._steps[number], envs)
        self._ran[number] = start, time.perf_counter_ns(), threading.get_ident()

    def run_code(self, code: CodeStep, crew: Crew) -> bool:
        """Run all tasks, which are code; False if one of them refused its values."""
        notes, row = code.note()
        start = time.perf_counter_ns()
        try:
            done = crew.run(code.schedule)
        finally:
            stop = time.perf_counter_ns()
            code.schedule.note(0)
        if done:
            self._noted = code, notes, row, crew.idents, self.began, start, stop
        return done

    def note(self, name: str, kind: Kind, start: int, **facts: Any) -> None:
        """Note something around the tasks that ended now.

        Args:
            name: what people read.
            kind: "feed", "fetch" or "transfer".
            start: when it began, in nanoseconds.
            facts: more about it.
        """
        stop = time.perf_counter_ns()
        self._around.append((name, kind, start, stop, threading.get_ident(), facts))

    @property
    def ended(self) -> list[int]:
        """Numbers of the tasks that ended since :meth:`begin`."""
        return [number for number, ran in enumerate(self._ran) if ran is not None]

    def end(self, recorders: Sequence[Recorder]) -> None:
        """The step is over: tell recorders what was recorded since :meth:`begin`."""
        if self._noted is not None:
            end = time.perf_counter_ns(), threading.get_ident()
            noted, size = (*self._noted, *end), self.size
        else:
            noted = self._stamps.copy(), self._ran, self._inner, self._around
            size = self.size + len(self._inner)
            self._envs = ()
        for recorder in recorders:
            recorder.keep(self, noted, size)

    def record(self, noted: tuple[Any, ...]) -> StepRecord:
        """What a step recorded, from what :meth:`end` told."""
        if len(noted) == 4:
            stamps, ran, inner, around = noted
            return StepRecord(self, partial(self._tasks, stamps, ran), inner, around)
        code, notes, row, idents, began, start, stop, end, ident = noted
        around = [
            ("Feed", "feed", began, start, ident, {}),
            ("Fetch", "fetch", stop, end, ident, {}),
        ]
        threads = [ident, *idents[1:]]
        return StepRecord(self, partial(code.tasks, notes, row, threads), (), around)

    def _tasks(
        self, stamps: np.ndarray[Any, Any], ran: Sequence[Ran | None]
    ) -> Iterator[TaskSpans]:
        """The tasks that ran, with what they did."""
        at = 0
        for task, steps, times in zip(
            self.binding.plan.tasks, self.binding.steps, ran, strict=True
        ):
            if times is not None:
                yield task, times, _spans(steps, stamps, at, times[0])
            at += sum(map(_width, steps))

    @functools.cached_property
    def lives(self) -> list[Life]:
        """The values of a step that take memory."""
        binding = self.binding
        return lives(binding.plan, binding.steps, binding.specs, self._measured)

    def _noting(self, step: Step, at: int, task: Task) -> Step:
        if step.code is not None:
            call: Any = partial(step.code.run, stamps=self._stamps, at=at)
            return Step(step.node, call, step.drops)
        op = step.node.op
        run = step.call
        if op is not None and op.bodies and step.node.device is not None:
            run = self._listening(step, task)
        stamps, clock, measured, node = (
            self._stamps,
            time.perf_counter_ns,
            self._measured,
            step.node,
        )
        unknown = any(var.kind == "var" for var in node.outputs)

        def call_and_note(values: Any) -> None:
            nonlocal unknown
            run(values)
            stamps[at] = clock()
            if unknown:  # at the first time alone
                unknown = False
                measure(node, self._envs, measured)

        return Step(step.node, call_and_note, step.drops)

    def _listening(self, step: Step, task: Task) -> Callable[[Env], None]:
        """A call that tells what the operators of its bodies take."""

        def call(env: Env) -> None:
            thread, inner = threading.get_ident(), self._inner

            def note(name: str, start: float, stop: float) -> None:
                inner.append(_Inner(name, task, step.node, start, stop, thread))

            env.record = note
            step.call(env)  # type: ignore[arg-type]
            env.record = None

        return call


@dataclass(frozen=True, slots=True)
class _Inner:
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
        recording: what it was recorded with.
        tasks: gives the tasks that ran.
        inner: operators of bodies.
        around: further events: what was fed and fetched.
        worker: where it ran; None for this process.
        shift: seconds to add to all times, for another process's clock.
    """

    recording: Recording
    tasks: Callable[[], Iterator[TaskSpans]]
    inner: Sequence[_Inner] = ()
    around: Sequence[_Around] = ()
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
        facts = self.recording.facts[nodes[0]]
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
        for life in self.recording.lives:
            if life.first is not None and life.first not in times:
                continue
            begin = first if life.first is None else times[life.first][0]
            end = max((times[node][1] for node in life.last if node in times), default=last)
            if life.heir in times:
                end = times[life.heir][0]
            begin, end = self._seconds(begin, end)
            yield Allocation(begin, life.device, life.name, life.bytes, life.kind)
            yield Allocation(end, life.device, life.name, -life.bytes, life.kind)


def _flat(steps: Sequence[Sequence[Step]]) -> Iterator[Step]:
    return (step for bound in steps for step in bound)


def _width(step: Step) -> int:
    """How many numbers it notes."""
    return 1 if step.code is None else step.code.rows + 3


def _parts(steps: Sequence[Sequence[Step]]) -> Iterator[list[OpNode]]:
    """The nodes whose work is done together."""
    for step in _flat(steps):
        if step.code is None:
            yield [step.node]
        else:
            yield from ([part.node for part in parts] for parts, _ in step.code.parts)


def _spans(
    steps: Sequence[Step], stamps: np.ndarray[Any, Any], at: int, before: float
) -> list[Span]:
    """What the steps of a task did.

    A step of Python began when what was before it ended.

    Args:
        steps: of the task.
        stamps: what was noted.
        at: where its first step noted something.
        before: when the task began.
    """
    spans: list[Span] = []
    for step in steps:
        noted = stamps[at : at + _width(step)]
        at += len(noted)
        if step.code is None:
            spans.append(([step.node], before, float(noted[0]), (1, 1)))
        else:
            times, row = step.code.times(noted), 0
            for parts, end in step.code.parts:
                spans.append(([part.node for part in parts], times[row], times[end], (1, 1)))
                row = end
        before = spans[-1][2]
    return spans


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
