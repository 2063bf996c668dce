"""Keeps what steps recorded while a run goes on; cheap enough to leave on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dpexec.engine.trace.events import Allocation, Event, Trace

__all__ = ["EVENTS_KEPT", "Notes", "OpenNotes", "Recorded", "Recorder", "Row", "Steps"]

EVENTS_KEPT = 200_000
"""How many events a recorder keeps; when there are more it forgets the oldest steps."""

Row = tuple[Any, ...]
"""The fields of an event, up to its node; the thread is the identifier that Python gives it."""


class Recorded(Protocol):
    """What one step recorded."""

    def rows(self) -> Iterable[Row]:
        """The events."""

    def allocations(self) -> Iterable[Allocation]:
        """The memory that was taken and given back."""


class Notes(Protocol):
    """What steps noted, as is quick to write; what that means is found out when asked."""

    @property
    def count(self) -> int:
        """How many steps noted something here so far."""

    @property
    def binding(self) -> Any:
        """What ran."""

    @property
    def began(self) -> Sequence[float]:
        """When each of these steps began, in nanoseconds."""

    @property
    def size(self) -> int:
        """Number of events of a step."""

    def record(self, row: int) -> Recorded:
        """What a step recorded.

        Args:
            row: which of the steps.
        """

    def tasks_ran(self, row: int) -> Iterable[tuple[Any, float, float]]:
        """When tasks of a step ran, which is cheaper to tell than what they did.

        Args:
            row: which of the steps.

        Returns:
            Tasks with begin and end in nanoseconds; several times one whose parts ran at different
            times.
        """


class OpenNotes(Notes, Protocol):
    """Notes of steps of which more may come."""

    def release(self) -> None:
        """Close the steps of all recorders; they are asked to follow again if more will come."""


@dataclass(eq=False, slots=True)
class Steps:
    """Some steps that noted one after another in one place.

    Args:
        notes: the place.
        first: row of the first of them.
        end: one behind the row of the last; None: all that follow, too.
    """

    notes: Notes
    first: int
    end: int | None = None

    def close(self) -> None:
        """Steps that follow are none of these."""
        self.end = self.stop

    @property
    def stop(self) -> int:
        """One behind the row of the last one so far."""
        return self.notes.count if self.end is None else self.end

    @property
    def size(self) -> int:
        """The number of events."""
        return (self.stop - self.first) * self.notes.size


class Recorder:
    """Keeps the latest steps; events are made of them when somebody asks for the trace.

    Args:
        limit: About how many events are kept, but always those of the last step.
    """

    __slots__ = ("_dropped", "_growing", "_limit", "_lock", "_size", "_steps")

    def __init__(self, limit: int = EVENTS_KEPT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._steps: deque[Steps] = deque()
        self._growing: dict[Steps, OpenNotes] = {}  # those that were open when last looked at
        self._size = 0  # events of the others
        self._dropped = 0

    def keep(self, notes: Notes) -> None:
        """Add what a step recorded; forget the oldest ones where these are too many.

        Args:
            notes: where it noted that, as the latest one.
        """
        steps = Steps(notes, notes.count - 1, notes.count)
        with self._lock:
            self._size += steps.size
            self._add(steps)

    def follow(self, notes: OpenNotes) -> Steps:
        """Keep what steps are going to note, see :class:`dpexec.engine.trace.live.Keeper`."""
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
        """The number of steps that were kept at some time."""
        with self._lock:
            return self._dropped + sum(steps.stop - steps.first for steps in self._steps)

    @property
    def latest(self) -> Notes | None:
        """Where the last step noted what it did; None if there was none."""
        kept, _ = self._kept()
        return kept[-1][0] if kept else None

    def clear(self) -> None:
        """Forget everything recorded so far; steps are counted from 0 again."""
        with self._lock:
            self._count()
            self._steps = deque(self._growing)
            for steps in self._growing:
                steps.first = steps.stop
            self._dropped = self._size = 0

    def steps(self) -> list[tuple[Any, Recorded]]:
        """What ran in each step that is kept, and what that recorded; in order."""
        return [(notes.binding, notes.record(row)) for notes, row in self._kept()[0]]

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
        """Return what was recorded so far, ordered by start.

        Threads are numbered from 0 in the order in which they first appear, so that traces of equal
        runs can be compared.

        Args:
            graph: What nodes and keys of events refer to; without it nodes refer to nothing.
            is_of: Says of what ran whether the graph is of it; else nodes refer to nothing, and
                keys say that they are of another plan.
            meta: Facts about the run as a whole; "steps" is added, the number of steps that ran,
                and "dropped_steps" if the trace lacks the first of them.

        Returns:
            The trace.
        """
        kept, dropped = self._kept()
        steps = [(notes.binding, notes.record(row)) for notes, row in kept]
        memory = [
            Allocation(_tick(it.time), it.device, it.name, it.bytes, it.kind)
            for _, recorded in steps
            for it in recorded.allocations()
        ]
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
    """The events of some steps, in order of their start; of what starts together the longest first.

    Args:
        steps: what they recorded.
        known: whether there is a graph that their nodes can refer to.
        first: number of the first of them.
        other: what is added to the keys of those that are not known.
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
        times = _tick(start), _tick(stop)
        events.append(Event(name, kind, device, key, *times, thread, args, number, step))
    return tuple(events)


def _tick(seconds: float) -> float:
    """A time in whole nanoseconds, which is what clocks tell and what files hold."""
    return round(seconds, 9)
