"""Recorded steps of a cluster: the notes of workers, on the clock of the client.

A worker notes the same as a process that runs a step alone
(:mod:`dpexec.engine.compile.bindings.recording`), and returns its notes with the fetches. The
client asks once per binding what the numbers mean.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from dpexec.engine.cluster.messages import Noted
from dpexec.engine.compile.bindings.failed_steps import FailedStep, OpenTask, failure_of
from dpexec.engine.compile.bindings.memory_use import Life, lives
from dpexec.engine.compile.bindings.recording import Recording
from dpexec.engine.compile.bindings.records import (
    Around,
    NodeTimes,
    NoteLayout,
    StepRecord,
    TaskSpans,
    allocations_of,
)
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.trace.events import Allocation
from dpexec.engine.trace.live import Keeper
from dpexec.engine.trace.processors import WorkerSamples, samples
from dpexec.engine.trace.recorder import Row

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.dask.waiting import Contact, Homes

__all__ = ["ClusterRecording", "Noted", "noted_on_worker"]

_TRIES = 5
_NANO = 1e-9


def noted_on_worker(recording: Recording) -> Noted:
    """The notes of this worker about the step that it records.

    Args:
        recording: the recording of the worker's binding.
    """
    from distributed import get_worker

    worker = get_worker()
    recording.has_rounds = False  # of loops; they are not sent
    stamps, ran, _, around = recording.noted
    began = around[0][2]
    transfers = list(_transfers(worker, began))
    moved, name, open_tasks = recording.moved, str(worker.name), {}
    if None in ran:  # and it may be that other workers run the task
        open_tasks = recording.unfinished(time.perf_counter_ns())
    return Noted(name, stamps, list(ran), transfers, moved, samples.sums(), open_tasks)


def _transfers(worker: Any, began: float) -> Iterator[Around]:
    """The transfers that a worker received since a time.

    Dask notes their times on the clock of its scheduler, from which they are converted.
    """
    ahead = time.perf_counter() - time.time() - worker.scheduler_delay
    for entry in list(worker.transfer_incoming_log):
        start, stop = ((entry[side] + ahead) / _NANO for side in ("start", "stop"))
        names = sorted(
            {str(key[0]) if isinstance(key, tuple) else str(key) for key in entry["keys"]}
        )
        if start >= began:
            facts = {"bytes": int(entry["total"]), "from": str(entry["who"]), "keys": names}
            yield (names[0], "transfer", start, stop, 0, {**facts, "worker": str(worker.name)})


class ClusterRecording:
    """Takes the notes of workers about the steps of a binding.

    Args:
        binding: the plan with its specs.
        homes: the device on whose worker each task runs.
        processors: keeps for how long workers waited for processors.

    Attributes:
        began: when the step began, in nanoseconds.
        layout: the meaning of the notes; None before :meth:`connect`.
        behind: seconds to add to each worker's clock.
    """

    def __init__(self, binding: Binding, homes: Sequence[int], processors: WorkerSamples) -> None:
        self.binding, self.homes, self.processors = binding, homes, processors
        self.began = 0
        self.layout: NoteLayout | None = None
        self.behind = processors.behind
        self._noted: tuple[Any, ...] = ()

    @property
    def ended(self) -> list[int]:
        """Empty: which tasks have ended is not known before the step is over."""
        return []

    def begin(self) -> None:
        """Called when a step begins."""
        self.began, self._noted = time.perf_counter_ns(), ()

    def connect(self, contact: Contact, homes: Homes, marks: Callable[[], Any]) -> None:
        """Ask workers about the meaning of their notes and about their clocks, if not done yet.

        Args:
            contact: talks to the workers.
            homes: the workers.
            marks: a function that gives, on a worker, what it notes.

        Raises:
            ClusterError: workers or scheduler do not answer.
        """
        if self.layout is None:
            first = dict([next(iter(homes.items()))])
            (found,) = contact.ask(marks, homes=first, what="to say what it notes").values()
            self.layout = NoteLayout(self.binding.plan, self.binding.specs, found)
        if not self.behind.keys() >= homes.keys():
            self.behind.update(_differences(contact, homes))

    def take(self, sent: int, addresses: Sequence[str], noted: Sequence[Noted | None]) -> None:
        """Take the notes that came with the fetches, or with the error of a failed step.

        Args:
            sent: when the step had been sent to the workers.
            addresses: the address of each device's worker.
            noted: for each device, the notes of its worker until the device was done, or failed;
                None or nothing if they are not known.
        """
        end = time.perf_counter_ns(), threading.get_ident()
        known = {at: each for at, each in enumerate(noted) if each is not None}
        self._noted = sent, self.homes, addresses, known, *end
        sums = {addresses[at]: each.processors for at, each in known.items()}
        self.processors.add(end[0], sums)

    def end(self, recorders: Sequence[Keeper]) -> None:
        """Called when the step is over.

        Args:
            recorders: keep the notes.
        """
        assert self.layout is not None
        notes = _ClusterNotes(self, self.layout, [self.began], *self._noted)
        for recorder in recorders:
            recorder.keep(notes)

    def broken_off(self, error: BaseException, facts: Mapping[str, Any]) -> FailedStep:
        """The notes of the step, which has failed; see :meth:`Recording.broken_off`."""
        now, done, at = time.perf_counter_ns(), None, []
        if self.layout is not None and self._noted and self._noted[3]:
            notes = _ClusterNotes(self, self.layout, [self.began], *self._noted)
            done, at = notes.record(0), notes.open_tasks()
            done.is_complete = False
        failure = failure_of(error, facts, self.began, now, at)
        return FailedStep(self.binding, [self.began], failure, done)

    def lives(self) -> list[Life]:
        """The values of a step that take memory, as far as it follows from shapes."""
        return self._lives

    @functools.cached_property
    def _lives(self) -> list[Life]:
        plan = self.binding.plan
        return lives(plan, [[] for _ in plan.tasks], self.binding.specs, {})


@dataclass(eq=False, slots=True)
class _ClusterNotes:
    """The notes of a step.

    Args:
        recording: the recording of its binding.
        layout: the meaning of the notes.
        began: when the step began, in a list.
        sent: when it had been sent to the workers.
        homes: the device on whose worker each task ran.
        addresses: the address of each device's worker.
        found: by device, the notes of its worker until the device was done.
        end: when the step ended.
        ident: the thread that waited for it.
    """

    recording: ClusterRecording
    layout: NoteLayout
    began: Sequence[float]
    sent: int
    homes: Sequence[int]
    addresses: Sequence[str]
    found: Mapping[int, Noted]
    end: int
    ident: int
    count: ClassVar[int] = 1

    @property
    def binding(self) -> Binding:
        """What ran."""
        return self.recording.binding

    @property
    def size(self) -> int:
        """Number of events."""
        return self.layout.size

    @property
    def processors(self) -> WorkerSamples:
        """For how long workers waited for processors."""
        return self.recording.processors

    def record(self, row: int) -> _ClusterRecord:
        """What the step recorded; ``row`` is 0, as there is one step."""
        parts = [self._part(device) for device in self.found]
        return _ClusterRecord(self.layout, parts, (self.began[0], self.sent, self.end, self.ident))

    def tasks_ran(self, row: int) -> Iterator[tuple[Task, float, float]]:
        """When tasks ran, on the clock of the client, see :meth:`Notes.tasks_ran`."""
        tasks = self.binding.plan.tasks
        for device, worker in self.found.items():
            shift = self.recording.behind[self.addresses[device]] / _NANO
            for task, ran, home in zip(tasks, worker.ran, self.homes, strict=True):
                if home == device and ran is not None:
                    yield task, ran[0] + shift, ran[1] + shift

    def _part(self, device: int) -> StepRecord:
        """The record of the tasks that a device's worker ran for it.

        Collectives of another worker's devices run on every worker of a gang, too: they are in the
        part of its last device.
        """
        worker, address = self.found[device], self.addresses[device]
        is_last = address not in self.addresses[device + 1 :]
        tasks = partial(self._tasks, device)
        received = worker.transfers if is_last else ()
        recording, shift = self.recording, self.recording.behind[address]
        name, moved = worker.worker, worker.moved
        return StepRecord(
            self.layout, recording.lives, tasks, (), received, name, shift, moved, device
        )

    def _is_of(self, device: int, task: Task) -> bool:
        """Whether a task is in the part of a device."""
        home, address = self.homes[task.id], self.addresses[device]
        is_last = address not in self.addresses[device + 1 :]
        return home == device or (
            is_last and task.is_collective and self.addresses[home] != address
        )

    def _tasks(self, device: int) -> Iterator[TaskSpans]:
        """The tasks in the part of a device; of unfinished ones, what they had done."""
        worker, tasks = self.found[device], self.binding.plan.tasks
        pairs = zip(tasks, worker.ran, strict=True)
        ran = [at if self._is_of(device, task) else None for task, at in pairs]
        yield from self.layout.tasks(worker.stamps, ran)
        for number, times in worker.unfinished.items():
            if self._is_of(device, tasks[number]):
                done, _ = self.layout.progress(number, worker.stamps, *times[:2])
                yield tasks[number], times, done

    def open_tasks(self) -> list[OpenTask]:
        """The tasks that had not ended when the step failed; times are those of the client."""
        found, tasks = [], self.binding.plan.tasks
        for device, worker in self.found.items():
            shift = self.recording.behind[self.addresses[device]] / _NANO
            for number, (begun, now, thread) in worker.unfinished.items():
                if self._is_of(device, tasks[number]):
                    done, node = self.layout.progress(number, worker.stamps, begun, now)
                    since = (done[-1][2] if done else begun) + shift
                    name = _thread_name(worker.worker, thread)
                    found.append(OpenTask(tasks[number], name, node, since, now + shift))
        return found


def _thread_name(worker: str | None, thread: int) -> str:
    """The name of a worker's thread in rows: numbers of several workers may be equal."""
    return f"{worker} {thread}"


@dataclass(slots=True)
class _ClusterRecord:
    """The record of a step on all workers.

    Args:
        layout: the meaning of the notes.
        parts: the record of each device.
        times: when the step began, was sent, and ended; and the thread that waited.
        is_complete: whether the step did not fail.
    """

    layout: NoteLayout
    parts: list[StepRecord]
    times: tuple[float, int, int, int]
    is_complete: bool = True

    def rows(self) -> Iterator[Row]:
        """The events; the fetch begins when the last worker is done."""
        began, sent, end, ident = (*(t * _NANO for t in self.times[:3]), self.times[3])
        rows = [
            (*row[:6], _thread_name(part.worker, row[6]), *row[7:])
            for part in self.parts
            for row in part.rows()
        ]
        done = max((row[5] for row in rows if row[1] == "task"), default=sent)
        yield ("Feed", "feed", None, "Feed", began, sent, ident, {}, None)
        yield from rows
        if self.is_complete:
            yield ("Fetch", "fetch", None, "Fetch", min(done, end), end, ident, {}, None)

    def allocations(self) -> Iterator[Allocation]:
        """The allocations and releases of memory; a value of one worker may end on another."""
        times: NodeTimes = {}
        for node, (begin, end) in (item for part in self.parts for item in part.times().items()):
            before = times.get(node, (begin, end))
            times[node] = min(before[0], begin), max(before[1], end)
        return allocations_of(self.parts[0].lives(), times)


def _differences(contact: Contact, workers: Homes) -> dict[str, float]:
    """Seconds to add to each worker's clock to get the client's.

    A worker's clock was read between the question and the answer, so each try narrows the
    difference. If the difference may be 0, as on one machine, it is taken as 0.
    """
    low = dict.fromkeys(workers, -float("inf"))
    high = dict.fromkeys(workers, float("inf"))
    for _ in range(_TRIES):
        asked = time.perf_counter_ns()
        found = contact.ask(time.perf_counter_ns, homes=workers, what="to read its clock")
        answered = time.perf_counter_ns()
        for worker, clock in found.items():
            low[worker] = max(low[worker], asked - clock)
            high[worker] = min(high[worker], answered - clock)
    return {
        worker: 0.0
        if low[worker] <= 0 <= high[worker]
        else (low[worker] + high[worker]) / 2 * _NANO
        for worker in workers
    }
