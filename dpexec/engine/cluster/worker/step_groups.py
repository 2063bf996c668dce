"""The tasks of a gang's steps, for dask's pages.

These steps do not go through dask's scheduler. So a member measures the tasks of some of its steps,
and tells the times by an event of its dask worker, at most twice a second. A plugin of the
scheduler shows them (:mod:`dpexec.dashboard.groups`). A *group* is, as in dask, all tasks of one
name, such as ``forward_backward_dev0``.

At most one step in a tenth of a second is measured, and measuring takes at most a hundredth of the
time. Which steps are measured depends on their count, so that members with the same pace measure
the same steps, and not on their bindings: every batch may have one of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from statistics import median_low
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from distributed.metrics import time as wall_time

from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.places import on_gpus
from dpexec.engine.graph.describe import task_key
from dpexec.engine.trace.recorder import Notes, OpenNotes, Steps

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.trace.live import Keeper

__all__ = ["TAG", "TOPIC", "StepGroups", "tell_all"]

TOPIC = "dpexec-groups"
"""The topic of the members' events."""

TAG = 8
"""How many characters of a run's token events and keys of tasks begin with."""

_EVERY = 0.1  # least seconds between steps that are measured
_SHARE = 0.01  # the part of the time that measuring may take
_TELL = 0.5  # least seconds between events
_SPANS = 100  # how many tasks of a step are told: the longest ones
_TEXT = 200  # characters of an error
_COSTS = 7  # of how many latest steps the processor time is kept
_NANO = 1e-9
_WHOLE = 1 << 32
_GOLDEN = 2_654_435_769  # that whole, divided by the golden ratio

_Sums = dict[str, list[float]]


@dataclass(slots=True)
class _Pace:
    """How often steps are measured.

    Args:
        steps: how many steps were made.
        every: one in so many is measured, on average; a power of 2.
        at: when the latest one was measured.
    """

    steps: int = 0
    every: int = 1
    at: float = -float("inf")

    @property
    def is_due(self) -> bool:
        """Whether the next step is measured.

        Multiples of the golden ratio spread evenly and without a period. So bindings that take
        turns all have their turn, and of two members the slower one measures what the other does.
        """
        return self.steps * _GOLDEN % _WHOLE < _WHOLE // self.every

    def adapt(self, now: float, wanted: float) -> None:
        """Called when a step is measured: adapt how many steps are not measured after it.

        Args:
            now: the time in seconds.
            wanted: wanted seconds between two measured steps.
        """
        gone = now - self.at
        if gone < wanted:
            self.every *= 2
        elif gone > 2.5 * wanted and self.every > 1:
            self.every //= 2
        self.at = now


@dataclass(slots=True)
class _Usual:
    """What steps of a binding consist of.

    Args:
        steps: how many steps were made.
        told: how many steps were told.
        sums: by name of a task, its seconds and runs in the latest measured step. Later steps are
            assumed to take the same.
    """

    steps: int = 0
    told: int = 0
    sums: Mapping[str, list[float]] = field(default_factory=dict)

    def tell(self, until: int, others: Mapping[str, list[float]], sums: _Sums) -> int:
        """Add the tasks of steps that were not told yet; returns the number of these steps.

        Args:
            until: number of the first step that is not to be told yet.
            others: the sums of another binding, which count if none of this one was measured.
            sums: seconds and runs, by name of the task.
        """
        more, self.told = until - self.told, until
        for name, (seconds, runs) in (self.sums or others).items() if more else ():
            found = sums.setdefault(name, [0.0, 0.0])
            found[0] += seconds * more
            found[1] += runs * more
        return more


class _Measured(NamedTuple):
    """A step that was measured.

    Args:
        usual: what steps of its binding consist of.
        before: how many steps of the binding came before it.
        every: one in so many steps was measured then.
        step: number of the step.
        notes: the notes that it wrote to.
        row: position of the step in these notes.
    """

    usual: _Usual
    before: int
    every: int
    step: int
    notes: Notes
    row: int

    def read(self, clock: float) -> Iterator[list[Any]]:
        """Its longest tasks: key, device, step, ``every``, start and end.

        Args:
            clock: seconds to add to its times.
        """
        found: dict[int, list[Any]] = {}
        for task, start, stop in self.notes.tasks_ran(self.row):
            span = found.setdefault(task.id, [task, start, stop])
            span[1:] = min(span[1], start), max(span[2], stop)
        usual: _Sums = {}
        for task, start, stop in found.values():
            sums = usual.setdefault(task.key[0], [0.0, 0.0])
            sums[0] += (stop - start) * _NANO
            sums[1] += 1
        self.usual.sums = usual
        longest = sorted(found.values(), key=lambda span: span[1] - span[2])[:_SPANS]
        for task, start, stop in sorted(longest, key=lambda span: span[1]):
            device = None if task.is_collective else task.device
            times = start * _NANO + clock, stop * _NANO + clock
            yield [task_key(task), device, self.step, self.every, *times]


class StepGroups:
    """Measures the tasks of a member's steps.

    Args:
        worker: the dask worker.
        token: of the run.
        members: number of members of the gang.
    """

    def __init__(self, worker: Any, token: str, members: int) -> None:
        self.worker, self._tag, self._members = worker, token[:TAG], members
        self._bindings: LimitedCache[int, _Usual] = LimitedCache(limit_of("usual steps"))
        self._changing = threading.Lock()
        self._pace, self._usual = _Pace(), _Usual()
        self._latest: Mapping[str, list[float]] = {}
        self._kept: tuple[Notes, int] | None = None
        self._following: Steps | None = None
        self._measured: deque[_Measured] = deque()
        self._failed: deque[tuple[str, int, float, float, str]] = deque()
        self._step = -1
        self._began = self._ended = 0.0
        self._spent = 0.0
        self._costs = deque[float](maxlen=_COSTS), deque[float](maxlen=_COSTS)
        self._read = 0.0  # processor seconds to read the notes of a step
        self._awaited = self._measures = False
        _all.add(self)

    # ---- on the thread that makes steps

    def begin(self, step: int, number: int, binding: Binding) -> tuple[Keeper, ...]:
        """Called when a step begins.

        Args:
            step: number of the step.
            number: number of the binding, for all numbers of rows.
            binding: the binding that runs.

        Returns:
            This object if the step is to be recorded for it; else nothing.
        """
        self._step, self._began = step, time.perf_counter()
        if not self._awaited:
            self._awaited = True
            self.worker.loop.add_callback(self._tell_later)
        with self._changing:  # the oldest one that drops out has told its steps long ago
            usual = self._bindings.used(number)
            if usual is None:
                usual = self._bindings[number] = _Usual()
        self._usual, pace = usual, self._pace
        self._spent = time.thread_time()
        # A recorded step on GPUs waits for each operator, and replays no graphs.
        self._measures = pace.is_due and not on_gpus(binding.plan.graph.places)
        if not self._measures:
            return ()
        plain, measured = (median_low(found) if found else 0.0 for found in self._costs)
        pace.adapt(self._began, max(_EVERY, (max(measured - plain, 0.0) + self._read) / _SHARE))
        _ = binding.recording  # made once per binding: here, and not between tasks
        return (self,)  # a new tuple each time makes a step of code ask again for its notes

    def keep(self, notes: Notes) -> None:
        """See :meth:`Keeper.keep`."""
        self._kept = notes, notes.count - 1

    def follow(self, notes: OpenNotes) -> Steps:
        """See :meth:`Keeper.follow`."""
        self._following = Steps(notes, notes.count)
        return self._following

    def end(self) -> None:
        """Called when the step is over."""
        followed, self._following = self._following, None
        if followed is not None and followed.stop > followed.first:
            self._kept = followed.notes, followed.first
        if self._kept is not None:
            usual, (notes, row) = self._usual, self._kept
            every = self._pace.every
            self._measured.append(_Measured(usual, usual.steps, every, self._step, notes, row))
            self._kept = None
        self._costs[self._measures].append(time.thread_time() - self._spent)
        self._pace.steps += 1
        self._usual.steps += 1
        self._ended = time.perf_counter()

    def fail(self, error: BaseException, name: str) -> None:
        """Called when the step has failed.

        Args:
            error: the reason.
            name: the name of the member's own tasks on dask's pages.
        """
        self._kept = self._following = None
        if self._began > self._ended:
            self._ended = time.perf_counter()
            said = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
            self._failed.append((name, self._step, self._began, self._ended, said[:_TEXT]))

    # ---- on the thread of the worker's event loop

    def _tell_later(self) -> None:
        self.worker.loop.call_later(_TELL, self._tell)

    def _tell(self) -> None:
        self._awaited = False
        told = self.take()
        if told is not None:
            self.worker.log_event(TOPIC, told)
        if self._began > self._ended and not self._awaited:  # a step still runs: tell how long
            self._awaited = True
            self._tell_later()

    def take(self) -> dict[str, Any] | None:
        """The news since the last call; None if there are none.

        Times are on the scheduler's clock, in seconds. Seconds and runs of groups are estimates for
        all steps, from the measured ones.
        """
        before, count = time.thread_time(), len(self._measured)
        clock = wall_time() - time.perf_counter() + self.worker.scheduler_delay
        groups: dict[str, list[float]] = {}
        spans: list[list[Any]] = []
        steps = 0
        for _ in range(count):
            measured = self._measured.popleft()
            steps += measured.usual.tell(measured.before, self._latest, groups)
            spans += measured.read(clock)
            self._latest = measured.usual.sums
        with self._changing:
            bindings = list(self._bindings.values())
        steps += sum(usual.tell(usual.steps, self._latest, groups) for usual in bindings)
        failed = [self._failed.popleft() for _ in range(len(self._failed))]
        began, now = self._began, time.perf_counter()
        runs = [self._step, now - began] if now - began > _TELL and began > self._ended else None
        if count:
            self._read = (self._read + (time.thread_time() - before) / count) / 2
        if not (steps or spans or failed or runs):
            return None
        return {
            "tag": self._tag,
            "members": self._members,
            "steps": steps,
            "groups": groups,
            "spans": spans,
            "failed": [
                [name, step, start + clock, stop + clock, why]
                for name, step, start, stop, why in failed
            ],
            "running": runs,
        }


_all: WeakSet[StepGroups] = WeakSet()


def tell_all(dask_worker: Any) -> None:
    """Let the members on a worker tell all their news now; runs on workers.

    Args:
        dask_worker: the dask worker of this process.
    """
    for groups in list(_all):
        told = groups.take() if groups.worker is dask_worker else None
        if told is not None:
            dask_worker.log_event(TOPIC, told)
    dask_worker.log_event(TOPIC, {"all": True})
