"""Keeps what steps recorded while a run goes on; cheap enough to leave on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from dpexec.trace.events import Allocation, Event, Trace

__all__ = ["EVENTS_KEPT", "Recorded", "Recorder", "Row"]

EVENTS_KEPT = 200_000
"""How many events a recorder keeps; when there are more it forgets the oldest steps."""

Row = tuple[Any, ...]
"""The fields of an event, up to its node; the thread is the identifier that Python gives it."""


class Recorded(Protocol):
    """What one step recorded, in a form that was quick to write."""

    @property
    def size(self) -> int:
        """Number of events."""

    def rows(self) -> Iterable[Row]:
        """The events."""

    def allocations(self) -> Iterable[Allocation]:
        """The memory that was taken and given back."""


class Recorder:
    """Keeps the latest steps; events are made of them when somebody asks for the trace.

    Args:
        limit: How many events are kept, but always those of the last step.
    """

    __slots__ = ("_count", "_limit", "_lock", "_size", "_steps")

    def __init__(self, limit: int = EVENTS_KEPT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._steps: deque[tuple[int, Recorded]] = deque()
        self._size = self._count = 0

    def keep(self, step: Recorded) -> None:
        """Add what a step recorded; forget the oldest ones where these are too many."""
        with self._lock:
            self._steps.append((self._count, step))
            self._count += 1
            self._size += step.size
            while self._size > self._limit and len(self._steps) > 1:
                self._size -= self._steps.popleft()[1].size

    def __len__(self) -> int:
        """The number of events."""
        return self._size

    @property
    def latest(self) -> Recorded | None:
        """What the last step recorded; None if there was none."""
        with self._lock:
            return self._steps[-1][1] if self._steps else None

    def clear(self) -> None:
        """Forget everything recorded so far; steps are counted from 0 again."""
        with self._lock:
            self._steps.clear()
            self._size = self._count = 0

    def trace(self, graph: Mapping[str, Any] | None = None, **meta: Any) -> Trace:
        """Return what was recorded so far, ordered by start.

        Threads are numbered from 0 in the order in which they first appear, so that traces of equal
        runs can be compared.

        Args:
            graph: What nodes of events refer to; without it they refer to nothing.
            meta: Facts about the run as a whole; "steps" is added, the number of steps that ran,
                and "dropped_steps" if the trace lacks the first of them.
        """
        with self._lock:
            steps, count = list(self._steps), self._count
        found = [(step, row) for step, recorded in steps for row in recorded.rows()]
        found.sort(key=lambda item: (item[1][4], -item[1][5]))
        numbers: dict[int, int] = {}
        events = []
        for step, (name, kind, device, key, start, stop, ident, args, node) in found:
            thread = numbers.setdefault(ident, len(numbers))
            number = node if graph else None
            events.append(Event(name, kind, device, key, start, stop, thread, args, number, step))
        used = [item for _, recorded in steps for item in recorded.allocations()]
        used.sort(key=lambda item: item.time)
        facts = {**meta, "steps": count}
        if count > len(steps):
            facts["dropped_steps"] = count - len(steps)
            facts["note"] = (
                f"the first {count - len(steps)} of {count} steps are not in the trace: the latest "
                f"{self._limit} events are kept"
            )
        return Trace(tuple(events), facts, graph, tuple(used))
