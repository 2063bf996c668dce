"""What a step records: when each task and operator ran, at next to no cost.

The steps of a binding exist a second time, made to note when they end: machine code notes the time
after each of its kernels, inside the one call without the GIL, so that a recorded step runs the
same code as any other. A step of Python is followed by one look at the clock. All times go to one
array, which is copied when the step is over; events are made of it when somebody asks for them.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.graph.describe import task_key
from dpexec.graph.ssa import OpNode
from dpexec.ir.spec import Spec
from dpexec.runtime.env import Env
from dpexec.runtime.memory_use import Life, Measured, bytes_of, lives, measure
from dpexec.runtime.partition import Task
from dpexec.runtime.plan import Plan
from dpexec.runtime.steps import Step, run_steps
from dpexec.trace.events import Allocation, Kind
from dpexec.trace.recorder import Row

if TYPE_CHECKING:
    from dpexec.runtime.binding import Binding

__all__ = ["Recording", "StepRecord", "parts_of"]

_NANO = 1e-9
Ran = tuple[int, int, int]
"""Start and end in nanoseconds, and the thread."""

_Span = tuple[list[OpNode], float, float]
"""Nodes whose work was done together, with start and end in nanoseconds."""

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
        at = 0
        self._steps: list[list[Step]] = []
        for task, bound in zip(plan.tasks, steps, strict=True):
            self._steps.append([])
            for step in bound:
                self._steps[-1].append(self._noting(step, at, task))
                at += _width(step)

    def begin(self) -> None:
        """Get ready for a step."""
        self._inner, self._around = [], []
        self._ran = [None] * len(self._steps)

    def run(self, number: int, envs: Sequence[Env]) -> None:
        """Run a task.

        Raises:
            EnforceNotMet: a kernel failed.
        """
        self._envs = envs
        start = time.perf_counter_ns()
        run_steps(self._steps[number], envs)
        self._ran[number] = start, time.perf_counter_ns(), threading.get_ident()

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

    def end(self) -> StepRecord:
        """What was recorded since :meth:`begin`."""
        self._envs = ()
        return StepRecord(self, self._stamps.copy(), self._ran, self._inner, self._around)

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
        stamps: the times that its steps noted.
        ran: start, end and thread of its tasks; None for those that ran elsewhere.
        inner: operators of bodies.
        around: further events: what was fed and fetched.
        worker: where it ran; None for this process.
        shift: seconds to add to all times, for another process's clock.
    """

    recording: Recording
    stamps: np.ndarray[Any, Any]
    ran: Sequence[Ran | None]
    inner: Sequence[_Inner] = ()
    around: Sequence[_Around] = ()
    worker: str | None = None
    shift: float = 0.0

    @property
    def size(self) -> int:
        """Number of events."""
        return self.recording.size + len(self.inner)

    def rows(self) -> Iterator[Row]:
        """The events: tasks, what they did, and what was fed and fetched."""
        where = {"worker": self.worker} if self.worker else {}
        for name, kind, start, stop, thread, facts in self.around:
            yield (name, kind, None, name, *self._seconds(start, stop), thread, facts, None)
        for task, ran, done in self._tasks():
            key, (start, stop, thread) = task_key(task), ran
            times = self._seconds(start, stop)
            yield (task.key[0], "task", task.device, key, *times, thread, where, None)
            for nodes, begin, end in done:
                node, times = nodes[0], self._seconds(begin, end)
                facts = {**where, **self.recording.facts[node]}
                if len(nodes) > 1:
                    facts["parts"] = [name for other in nodes for name in parts_of(other)]
                name = "+".join(other.name for other in nodes)
                kind = "collective" if node.is_collective else "op"
                yield (name, kind, node.device, key, *times, thread, facts, node.id)
        for item in self.inner:
            key, device = task_key(item.task), item.node.device
            times = item.start + self.shift, item.stop + self.shift
            facts = {**where, "inside": item.node.name}
            yield (item.name, "op", device, key, *times, item.thread, facts, None)

    def _tasks(self) -> Iterator[tuple[Task, Ran, list[_Span]]]:
        """The tasks that ran, with what they did."""
        binding, at = self.recording.binding, 0
        for task, steps, ran in zip(binding.plan.tasks, binding.steps, self.ran, strict=True):
            if ran is not None:
                yield task, ran, _spans(steps, self.stamps, at, ran[0])
            at += sum(map(_width, steps))

    def _seconds(self, start: float, stop: float) -> tuple[float, float]:
        return start * _NANO + self.shift, max(start, stop) * _NANO + self.shift

    def allocations(self) -> Iterator[Allocation]:
        """The memory that was taken and given back."""
        times: dict[OpNode, tuple[float, float]] = {}
        for _, _, done in self._tasks():
            times.update((node, (begin, end)) for nodes, begin, end in done for node in nodes)
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
) -> list[_Span]:
    """What the steps of a task did.

    A step of Python began when what was before it ended.

    Args:
        steps: of the task.
        stamps: what was noted.
        at: where its first step noted something.
        before: when the task began.
    """
    spans: list[_Span] = []
    for step in steps:
        noted = stamps[at : at + _width(step)]
        at += len(noted)
        if step.code is None:
            spans.append(([step.node], before, float(noted[0])))
        else:
            times, row = step.code.times(noted), 0
            for parts, end in step.code.parts:
                spans.append(([part.node for part in parts], times[row], times[end]))
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
        return [json.loads(text)["type"] for text in op.attrs["parts"]]
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
