"""Recording of steps: the times of each task and operator, at next to no cost.

A second list of a binding's steps notes when they end. Machine code notes the time after each of
its kernels, inside the one call without the GIL, so a recorded step runs the same code as any
other. After a step of Python the clock is read once; the processor time of its thread is read
before and after it. The difference between both durations is sleep, or waiting for the GIL or a
core. All times go to one array, which is copied when the step is over. Events are made of the array
when the trace is read.

Rounds of a loop mostly run as one call of code. To record what they do, they run one by one, which
takes Python. So only the first steps of a recording do that; later ones have the times that steps
have without a recording.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from dpexec.engine.compile.bindings.failed_steps import FailedStep, OpenTask, failure_of
from dpexec.engine.compile.bindings.memory_use import Life, Measured, lives, measure, nbytes_of
from dpexec.engine.compile.bindings.notes import CodeNotes
from dpexec.engine.compile.bindings.records import (
    NOT_MEASURED,
    Around,
    Inner,
    Moved,
    NoteLayout,
    Ran,
    StepRecord,
    marks_of,
)
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Step, run_steps
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.trace.events import Kind
from dpexec.engine.trace.live import Keeper
from dpexec.engine.trace.processors import Samples, samples

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.compile.bindings.code_step import CodeStep
    from dpexec.engine.threads.thread_team import ThreadTeam

__all__ = ["Recording"]

_DETAILED = 3  # steps that record the rounds of loops, behind the first one of a recording


class _Detail:
    """How many steps of a plan were recorded, of all sizes: those of sequences rarely repeat.

    Attributes:
        steps: since the recorders are these.
        recorders: their ids, as what they keep may be large.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.recorders: set[int] = set()


_details: WeakKeyDictionary[Plan, _Detail] = WeakKeyDictionary()


class Recording:
    """The steps of a binding that note when they ran.

    Args:
        binding: the plan with its steps and specs.

    Attributes:
        moved: by id of a collective, the bytes that it moved in this step, if they differ between
            steps.
        has_rounds: whether the first steps note the rounds of loops.
    """

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        plan, steps = binding.plan, binding.steps
        self.marks = marks_of(steps)
        self.layout = NoteLayout(plan, binding.specs, self.marks)
        self._stamps = np.zeros(self.layout.width, np.int64)
        self._measured: Measured = {}
        self._envs: Sequence[Env] = ()
        self._inner: list[Inner] = []
        self._around: list[Around] = []
        self._ran: list[Ran | None] = []
        self._begun: dict[int, tuple[int, int]] = {}  # by task, when it began, and the thread
        self._room: CodeNotes | None = None  # for steps of code
        self.began = 0
        self.has_rounds = True
        self._detail = _details.setdefault(plan, _Detail())
        self.moved: Moved = {}
        at = 0
        self._steps: list[list[Step]] = []
        self._places: list[list[int]] = []  # by task: where its steps note their end
        for task, bound, marks in zip(plan.tasks, steps, self.marks, strict=True):
            self._steps.append([])
            self._places.append([])
            for step, mark in zip(bound, marks, strict=True):
                self._places[-1].append(at)
                self._steps[-1].append(self._noting(step, at, task))
                at += mark.width

    def begin(self) -> None:
        """Called when a step begins that runs task by task."""
        self.began = perf_counter_ns()
        self._detail.steps += 1

    def begin_tasks(self) -> None:
        """Called when the step's values have been fed."""
        self._inner, self._around, self.moved = [], [], {}
        self._ran = [None] * len(self._steps)
        self._begun = {}
        self.note("Feed", "feed", self.began)

    def run(
        self,
        number: int,
        envs: Sequence[Env],
        run: Callable[[Sequence[Step], Sequence[Env]], None] = run_steps,
    ) -> None:
        """Run a task.

        Args:
            number: of the task.
            envs: the values, per device.
            run: runs its steps.

        Raises:
            EnforceNotMet: a kernel failed.
        """
        self._envs = envs
        start = perf_counter_ns()
        self._begun[number] = start, threading.get_ident()
        run(self._steps[number], envs)
        self._ran[number] = start, perf_counter_ns(), threading.get_ident()

    def correct(self, number: int, start: int, ends: Sequence[int], lane: int) -> None:
        """Replace the host's times of a task by those of the GPU that ran it.

        Args:
            number: of the task.
            start: when it began, in nanoseconds.
            ends: when each of its steps ended, in nanoseconds.
            lane: the number of the stream, which stands for the thread.
        """
        for at, end in zip(self._places[number], ends, strict=False):  # the host's may be more
            self._stamps[at : at + 2] = end, NOT_MEASURED
        self._ran[number] = start, ends[-1], lane

    def room(self, code: CodeStep, team: ThreadTeam) -> CodeNotes:
        """The notes that the next runs of a step of code fill.

        Args:
            code: the step of code.
            team: the threads that run it.
        """
        team.idents[0] = threading.get_ident()
        if self._room is None or self._room.count == self._room.most:
            owners = {} if code.exchange is None else code.exchange.owners
            self._room = CodeNotes(
                self.binding,
                self.layout,
                self.lives,
                code.schedule,
                code.parts,
                code.joined,
                team.idents,
                owners,
            )
        self._ran = []
        return self._room

    def note_moved(self, moved: Moved) -> None:
        """Note how many bytes collectives moved between processes.

        Args:
            moved: bytes by number of the task, whose first node does the work of all. Numbers that
                belong to no task of the plan are left out.
        """
        for task in self.binding.plan.tasks:
            if task.id in moved:
                self._note_size(task.nodes[0], moved[task.id])

    def _note_size(self, node: OpNode, sizes: Mapping[str, int]) -> None:
        self.moved[node.id] = {**self.moved.get(node.id, {}), **sizes}

    def note(self, name: str, kind: Kind, start: int, **facts: Any) -> None:
        """Note an event around the tasks, which ends now.

        Args:
            name: the name that people read.
            kind: "feed", "fetch" or "transfer".
            start: when it began, in nanoseconds.
            facts: more facts of the event.
        """
        stop = perf_counter_ns()
        self._around.append((name, kind, start, stop, threading.get_ident(), facts))

    @property
    def ended(self) -> list[int]:
        """Numbers of the tasks that ended since :meth:`begin`."""
        return [number for number, ran in enumerate(self._ran) if ran is not None]

    @property
    def noted(self) -> tuple[Any, ...]:
        """Times of steps, times of tasks, operators of blocks, and further events, so far."""
        return self._stamps.copy(), self._ran, self._inner, self._around

    def end(self, recorders: Sequence[Keeper]) -> None:
        """Called when a step that ran task by task is over.

        Args:
            recorders: keep the notes.
        """
        self._envs = ()
        known = set(map(id, recorders))
        if not known & self._detail.recorders:  # some take part in a few of the steps of others
            self._detail.steps = 0
        self._detail.recorders = known
        stamps, ran, inner, around = self.noted
        notes = _TaskNotes(self, stamps, ran, inner, around, self.moved)
        for recorder in recorders:
            recorder.keep(notes)
        now = perf_counter_ns()
        if now >= samples.due:
            samples.take(now)

    def unfinished(self, now: int) -> dict[int, Ran]:
        """By number: when tasks began that have not ended, ``now``, and the thread."""
        begun = self._begun.items()
        return {n: (since, now, thread) for n, (since, thread) in begun if self._ran[n] is None}

    def broken_off(self, error: BaseException, facts: Mapping[str, Any]) -> FailedStep:
        """The notes of the step, which has failed.

        Args:
            error: what was raised.
            facts: of the event of the failure.
        """
        self._envs = ()
        now, layout, tasks = perf_counter_ns(), self.layout, self.binding.plan.tasks
        stamps, ran, inner, around = self.noted
        spans, at = [*layout.tasks(stamps, ran)] if ran else [], []
        for number, (begun, _, thread) in self.unfinished(now).items():
            done, node = layout.progress(number, stamps, begun, now)
            since = done[-1][2] if done else begun
            at.append(OpenTask(tasks[number], thread, node, since, now))
            spans.append((tasks[number], (begun, now, thread), done))
        failure = failure_of(error, facts, self.began, now, at)
        record = StepRecord(layout, self.lives, lambda: iter(spans), inner, around)
        return FailedStep(self.binding, [self.began], failure, record)

    def lives(self) -> list[Life]:
        """The values of a step that take memory."""
        return self._lives

    @functools.cached_property
    def _lives(self) -> list[Life]:
        binding = self.binding
        return lives(binding.plan, binding.steps, binding.specs, self._measured)

    def _noting(self, step: Step, at: int, task: Task) -> Step:
        """A step that notes its time, or the times of its kernels, from position ``at`` on."""
        if step.code is not None:
            call: Any = partial(step.code.run, stamps=self._stamps, at=at)
            return Step(step.node, call, step.drops, step.code)
        node = step.node
        run: Any = step.call
        if node.is_collective:
            if "bytes" not in self.layout.facts[node]:
                run = self._weighing(step)
        elif node.op is not None and node.op.bodies:
            run = self._listening(step, task)
        stamps, clock, busy = self._stamps, perf_counter_ns, thread_time_ns
        unknown = any(var.kind == "var" for var in node.outputs)

        def call_and_note(values: Any) -> None:
            nonlocal unknown
            before = busy()
            run(values)
            stamps[at + 1] = busy() - before
            stamps[at] = clock()
            if unknown:  # only the first time
                unknown = False
                measure(node, self._envs, self._measured)

        return Step(node, call_and_note, step.drops)

    def _weighing(self, step: Step) -> Callable[[Sequence[Env]], None]:
        """A call of a sparse collective that notes the bytes of its results."""
        made = {var.name: var for var in step.node.outputs if var.kind == "var"}.values()

        def call(envs: Sequence[Env]) -> None:
            step.call(envs)  # type: ignore[arg-type]
            values = [envs[var.device].get(var.name) for var in made]
            self._note_size(step.node, {"bytes": sum(map(nbytes_of, values))})

        return call

    def _listening(self, step: Step, task: Task) -> Callable[[Env], None]:
        """A call of an operator with blocks that notes the times of the operators inside."""

        def call(env: Env) -> None:
            if not self.has_rounds or self._detail.steps > _DETAILED:
                return step.call(env)  # type: ignore[arg-type]
            thread, inner = threading.get_ident(), self._inner

            def note(name: str, start: float, stop: float) -> None:
                inner.append(Inner(name, task, step.node, start, stop, thread))

            env.record = note
            step.call(env)  # type: ignore[arg-type]
            env.record = None
            return None

        return call


@dataclass(eq=False, slots=True)
class _TaskNotes:
    """The notes of a step that ran task by task.

    Args:
        recording: the recording of its binding.
        stamps: the times that steps noted.
        ran: when tasks ran.
        inner: operators of blocks.
        around: feeds, fetches and transfers.
        moved: the bytes that collectives moved, by id of the node.
    """

    recording: Recording
    stamps: np.ndarray[Any, Any]
    ran: Sequence[Ran | None]
    inner: Sequence[Inner]
    around: Sequence[Around]
    moved: Moved
    count: ClassVar[int] = 1

    @property
    def binding(self) -> Binding:
        """What ran."""
        return self.recording.binding

    @property
    def size(self) -> int:
        """Number of events."""
        return self.recording.layout.size + len(self.inner)

    @property
    def processors(self) -> Samples:
        """For how long threads waited for processors."""
        return samples

    @property
    def began(self) -> Sequence[float]:
        """When the step began."""
        return [self.around[0][2]]

    def record(self, row: int) -> StepRecord:
        """What the step recorded; ``row`` is 0, as there is one step."""
        layout = self.recording.layout
        tasks = partial(layout.tasks, self.stamps, self.ran)
        around, moved = self.around, self.moved
        return StepRecord(layout, self.recording.lives, tasks, self.inner, around, moved=moved)

    def tasks_ran(self, row: int) -> Iterator[tuple[Task, float, float]]:
        """When tasks ran, see :meth:`Notes.tasks_ran`."""
        for task, times in zip(self.binding.plan.tasks, self.ran, strict=True):
            if times is not None:
                yield task, times[0], times[1]
