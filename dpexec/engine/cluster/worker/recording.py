"""What the workers of a cluster recorded of a step, on the clock of the client.

A worker notes what a process notes that runs a step by itself
(:mod:`dpexec.engine.compile.bindings.recording`), and returns it with the fetches. What the
numbers mean is
asked once per binding.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from dpexec.engine.cluster.messages import Noted
from dpexec.engine.compile.bindings.memory_use import Life, lives
from dpexec.engine.compile.bindings.recording import Recording
from dpexec.engine.compile.bindings.records import Around, NoteLayout, StepRecord
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.trace.events import Allocation
from dpexec.engine.trace.live import Keeper
from dpexec.engine.trace.recorder import Row

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.dask.waiting import Contact, Homes

__all__ = ["ClusterRecording", "Noted", "noted_on_worker"]

_TRIES = 5
_NANO = 1e-9


def noted_on_worker(recording: Recording) -> Noted:
    """What this worker has noted of the step that it records.

    Args:
        recording: of the worker's binding.
    """
    from distributed import get_worker

    worker = get_worker()
    stamps, ran, _, around = recording.noted
    began = around[0][2]
    transfers = list(_transfers(worker, began))
    return Noted(str(worker.name), stamps, list(ran), transfers, recording.moved)


def _transfers(worker: Any, began: float) -> Iterator[Around]:
    """What a worker received since some time.

    It notes that on the clock of dask's scheduler.
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
    """Takes what workers recorded of the steps of a binding.

    Args:
        binding: the plan with its specs.

    Attributes:
        began: when the step began, in nanoseconds.
        layout: of what workers note; None before :meth:`connect`.
        behind: seconds to add to each worker's clock.
    """

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.began = 0
        self.layout: NoteLayout | None = None
        self.behind: dict[str, float] = {}
        self._noted: tuple[Any, ...] = ()

    @property
    def ended(self) -> list[int]:
        """Tasks that ended are not known before the step is over."""
        return []

    def begin(self) -> None:
        """A step begins."""
        self.began = time.perf_counter_ns()

    def connect(self, contact: Contact, homes: Homes, marks: Callable[[], Any]) -> None:
        """Learn what the workers note and how their clocks differ, if they are not known yet.

        Args:
            contact: how workers are talked to.
            homes: the workers.
            marks: what a worker calls to tell what it notes.

        Raises:
            ClusterError: workers or scheduler do not answer.
        """
        if self.layout is None or not self.behind.keys() >= homes.keys():
            first = dict([next(iter(homes.items()))])
            (found,) = contact.ask(marks, homes=first, what="to say what it notes").values()
            self.layout = NoteLayout(self.binding.plan, self.binding.specs, found)
            self.behind |= _differences(contact, homes)

    def take(
        self, sent: int, homes: Sequence[int], addresses: Sequence[str], noted: Sequence[Noted]
    ) -> None:
        """Take what came back with the fetches.

        Args:
            sent: when the step had been sent to the workers.
            homes: the device at whose worker each task ran.
            addresses: of the worker of each device.
            noted: what it noted until the device was done.
        """
        end = time.perf_counter_ns(), threading.get_ident()
        self._noted = sent, homes, addresses, noted, *end

    def end(self, recorders: Sequence[Keeper]) -> None:
        """The step is over.

        Args:
            recorders: are to keep what it noted.
        """
        assert self.layout is not None
        notes = _ClusterNotes(self, self.layout, [self.began], *self._noted)
        for recorder in recorders:
            recorder.keep(notes)

    def lives(self) -> list[Life]:
        """The values of a step that take memory, as far as their shapes say."""
        return self._lives

    @functools.cached_property
    def _lives(self) -> list[Life]:
        plan = self.binding.plan
        return lives(plan, [[] for _ in plan.tasks], self.binding.specs, {})


@dataclass(eq=False, slots=True)
class _ClusterNotes:
    """What a step noted.

    Args:
        recording: of its binding.
        layout: of what workers noted.
        began: when the step began, in a list.
        sent: when it had been sent to the workers.
        homes: the device at whose worker each task ran.
        addresses: of the worker of each device.
        found: what it noted until the device was done.
        end: when the step ended.
        ident: the thread that waited for it.
    """

    recording: ClusterRecording
    layout: NoteLayout
    began: Sequence[float]
    sent: int
    homes: Sequence[int]
    addresses: Sequence[str]
    found: Sequence[Noted]
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

    def record(self, row: int) -> _ClusterRecord:
        """What the step recorded; it is the only one."""
        parts = [self._part(device) for device in range(len(self.addresses))]
        return _ClusterRecord(parts, (self.began[0], self.sent, self.end, self.ident))

    def tasks_ran(self, row: int) -> Iterator[tuple[Task, float, float]]:
        """When tasks ran, see :meth:`Notes.tasks_ran`; on the clock of the client."""
        tasks = self.binding.plan.tasks
        for device, worker in enumerate(self.found):
            shift = self.recording.behind[self.addresses[device]] / _NANO
            for task, ran, home in zip(tasks, worker.ran, self.homes, strict=True):
                if home == device and ran is not None:
                    yield task, ran[0] + shift, ran[1] + shift

    def _part(self, device: int) -> StepRecord:
        """What the worker of a device did for it."""
        worker, address = self.found[device], self.addresses[device]
        here = zip(worker.ran, self.homes, strict=True)
        ran = [at if home == device else None for at, home in here]
        tasks = partial(self.layout.tasks, worker.stamps, ran)
        received = worker.transfers if address not in self.addresses[device + 1 :] else ()
        recording, shift = self.recording, self.recording.behind[address]
        name, moved = worker.worker, worker.moved
        return StepRecord(self.layout, recording.lives, tasks, (), received, name, shift, moved)


@dataclass(slots=True)
class _ClusterRecord:
    """What all workers recorded of a step.

    Args:
        parts: what each of them did.
        times: when the step began, was sent, and ended, and the thread.
    """

    parts: list[StepRecord]
    times: tuple[float, int, int, int]

    def rows(self) -> Iterator[Row]:
        """The events; the fetch begins when the last worker is done."""
        began, sent, end, ident = (*(t * _NANO for t in self.times[:3]), self.times[3])
        rows = [
            (*row[:6], f"{part.worker} {row[6]}", *row[7:])
            for part in self.parts
            for row in part.rows()
        ]
        done = max((row[5] for row in rows if row[1] == "task"), default=sent)
        yield ("Feed", "feed", None, "Feed", began, sent, ident, {}, None)
        yield from rows
        yield ("Fetch", "fetch", None, "Fetch", min(done, end), end, ident, {}, None)

    def allocations(self) -> Iterator[Allocation]:
        """The memory that was taken and given back."""
        for part in self.parts:
            yield from part.allocations()


def _differences(contact: Contact, workers: Homes) -> dict[str, float]:
    """Seconds to add to each worker's clock to get the client's.

    The answer of a worker tells that its clock was read between question and answer, so each try
    narrows the difference. Clocks that may be one clock, as on one machine, are taken as one.
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
