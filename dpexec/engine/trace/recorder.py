"""Keeps the records of steps during a run; cheap enough to leave on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.trace.events import Allocation, Event, Trace, tick
from dpexec.engine.trace.processors import Samples, WorkerSamples

__all__ = ["EVENTS_KEPT", "Notes", "OpenNotes", "Recorded", "Recorder", "Row", "Steps"]

EVENTS_KEPT = 200_000
"""How many events a recorder keeps; beyond that it drops the oldest steps."""

Row = tuple[Any, ...]
"""The fields of an event, up to its node; the thread is Python's thread identifier."""


class Recorded(Protocol):
    """The record of one step."""

    def rows(self) -> Iterable[Row]:
        """The events."""

    def allocations(self) -> Iterable[Allocation]:
        """The allocations and releases of memory, at times in whole nanoseconds."""


class Notes(Protocol):
    """Notes of steps in a form that is fast to write; they are interpreted when read."""

    @property
    def count(self) -> int:
        """The number of steps that were noted here so far."""

    @property
    def binding(self) -> Any:
        """The binding that ran; None if the step failed before that was known."""

    @property
    def began(self) -> Sequence[float]:
        """The begin of each step in nanoseconds."""

    @property
    def size(self) -> int:
        """Number of events of a step."""

    @property
    def processors(self) -> Samples | WorkerSamples:
        """For how long the threads that made the steps waited for processors."""

    def record(self, row: int) -> Recorded:
        """The record of a step.

        Args:
            row: position of the step.
        """

    def tasks_ran(self, row: int) -> Iterable[tuple[Any, float, float]]:
        """The times of a step's tasks, which are cheaper to get than the full record.

        Args:
            row: position of the step.

        Returns:
            Tasks with begin and end in nanoseconds; a task whose parts ran at different times has
            several entries.
        """


class OpenNotes(Notes, Protocol):
    """Notes to which more steps may be added."""

    def release(self) -> None:
        """Close the ranges of all recorders, which are asked to follow again before new steps."""


@dataclass(eq=False, slots=True)
class Steps:
    """A range of consecutive steps in the same notes.

    Args:
        notes: the notes.
        first: row of the first step.
        end: one behind the row of the last step; None for an open range.
    """

    notes: Notes
    first: int
    end: int | None = None

    def close(self) -> None:
        """End the range: later steps do not belong to it."""
        self.end = self.stop

    @property
    def stop(self) -> int:
        """One behind the row of the last step so far."""
        return self.notes.count if self.end is None else self.end

    @property
    def size(self) -> int:
        """The number of events."""
        return (self.stop - self.first) * self.notes.size


class Recorder:
    """Keeps the latest steps; their events are made when the trace is requested.

    Args:
        limit: About how many events are kept; the last step is always kept.
    """

    __slots__ = ("_dropped", "_growing", "_limit", "_lock", "_size", "_steps")

    def __init__(self, limit: int = EVENTS_KEPT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._steps: deque[Steps] = deque()
        self._growing: dict[Steps, OpenNotes] = {}  # open ranges, as of the last update
        self._size = 0  # number of events of closed ranges
        self._dropped = 0

    def keep(self, notes: Notes) -> None:
        """Add a recorded step; drop the oldest steps if there are too many events.

        Args:
            notes: the notes, whose latest step it is.
        """
        steps = Steps(notes, notes.count - 1, notes.count)
        with self._lock:
            self._size += steps.size
            self._add(steps)

    def follow(self, notes: OpenNotes) -> Steps:
        """Keep steps recorded from now on, see :class:`dpexec.engine.trace.live.Keeper`."""
        steps = Steps(notes, notes.count)
        with self._lock:
            self._growing[steps] = notes
            self._add(steps)
        return steps

    def _add(self, steps: Steps) -> None:
        self._steps.append(steps)
        while self._count() > self._limit and self._steps[0] is not steps:
            self._forget(self._steps.popleft())

    def _count(self) -> int:
        """The number of events."""
        for steps in [steps for steps in self._growing if steps.end is not None]:
            del self._growing[steps]
            self._size += steps.size
        return self._size + sum(steps.size for steps in self._growing)

    def _forget(self, steps: Steps) -> None:
        if steps in self._growing:
            self._growing[steps].release()
            self._count()
        self._size -= steps.size
        self._dropped += steps.stop - steps.first

    def __len__(self) -> int:
        """The number of events."""
        with self._lock:
            return self._count()

    @property
    def told(self) -> int:
        """The number of steps recorded so far, including dropped ones."""
        with self._lock:
            return self._dropped + sum(steps.stop - steps.first for steps in self._steps)

    @property
    def last(self) -> Notes | None:
        """The notes of the last step, also of one that failed early; None if there was none."""
        kept, _ = self._kept()
        return kept[-1][0] if kept else None

    @property
    def latest(self) -> Notes | None:
        """The notes of the last step whose binding is known; None if there was none."""
        kept, _ = self._kept()
        return next((notes for notes, _ in reversed(kept) if notes.binding is not None), None)

    def clear(self) -> None:
        """Forget everything recorded so far; steps are counted from 0 again."""
        with self._lock:
            self._count()
            self._steps = deque(self._growing)
            for steps in self._growing:
                steps.first = steps.stop
            self._dropped = self._size = 0

    def steps(self) -> list[tuple[Any, Recorded]]:
        """The binding and the record of each kept step whose binding is known, in order."""
        kept = [(notes.binding, notes.record(row)) for notes, row in self._kept()[0]]
        return [(binding, record) for binding, record in kept if binding is not None]

    def _kept(self) -> tuple[list[tuple[Notes, int]], int]:
        """The steps in order, and how many were dropped before them."""
        with self._lock:
            kept = [(it.notes, row) for it in self._steps for row in range(it.first, it.stop)]
            dropped = self._dropped
        return sorted(kept, key=lambda step: step[0].began[step[1]]), dropped

    def trace(
        self,
        graph: Mapping[str, Any] | None = None,
        is_of: Callable[[Any], bool] = lambda binding: True,
        **meta: Any,
    ) -> Trace:
        """Return the trace recorded so far, ordered by start.

        Threads are numbered from 0 in the order in which they first appear, so that traces of equal
        runs can be compared.

        Args:
            graph: The graph that nodes and keys of events refer to; without it events have no node.
            is_of: Tells whether the graph belongs to a binding. Events of other bindings have no
                node, and keys that mark them as those of another plan.
            meta: Facts about the run as a whole; "steps" is added, the number of steps that ran,
                and "dropped_steps" if the trace lacks the first of them.

        Returns:
            The trace.
        """
        kept, dropped = self._kept()
        steps = [(notes.binding, notes.record(row)) for notes, row in kept]
        memory = [one for _, recorded in steps for one in recorded.allocations()]
        memory.sort(key=lambda item: item.time)
        facts = {**meta, "steps": dropped + len(steps)}
        if dropped:
            facts["dropped_steps"] = dropped
            facts["note"] = (
                f"the first {dropped} of {dropped + len(steps)} steps are not in the trace: the "
                f"latest {self._limit} events are kept"
            )
        known = [graph is not None and is_of(binding) for binding, _ in steps]
        found = [recorded for _, recorded in steps]
        other = " of another plan" if graph else ""
        return Trace(_events(found, known, dropped, other), facts, graph, tuple(memory))


def _events(
    steps: Sequence[Recorded], known: Sequence[bool], first: int, other: str
) -> tuple[Event, ...]:
    """The events of some steps, ordered by start; with equal starts the longest comes first.

    Args:
        steps: the records of the steps.
        known: whether there is a graph that their nodes can refer to.
        first: number of the first step.
        other: suffix for the keys of steps that are not of the graph.
    """
    rows = [
        (step, row, is_known)
        for step, (recorded, is_known) in enumerate(zip(steps, known, strict=True), first)
        for row in recorded.rows()
    ]
    rows.sort(key=lambda item: (item[1][4], -item[1][5]))
    threads: dict[Any, int] = {}
    events = []
    for step, (name, kind, device, key, start, stop, ident, args, node), is_known in rows:
        thread = threads.setdefault(ident, len(threads))
        key, number = (key, node) if is_known else (key + other, None)
        events.append(
            Event(name, kind, device, key, tick(start), tick(stop), thread, args, number, step)
        )
    return tuple(events)
