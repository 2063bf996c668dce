"""Keeps what steps recorded while a run goes on; cheap enough to leave on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from dpexec.trace.events import Allocation, Event, Trace

__all__ = ["EVENTS_KEPT", "Kept", "Recorded", "Recorder", "Row", "Source"]

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


class Source(Protocol):
    """What records steps in a form that is quick to write."""

    def record(self, noted: tuple[Any, ...]) -> Recorded:
        """What a step recorded, from what it wrote."""


Kept = tuple[Source, tuple[Any, ...], int]
"""What recorded a step, what it wrote, and the number of events."""


class Recorder:
    """Keeps the latest steps; events are made of them when somebody asks for the trace.

    Args:
        limit: About how many events are kept, but always those of the last step.
    """

    __slots__ = ("_dropped", "_limit", "_lock", "_room", "_steps")

    def __init__(self, limit: int = EVENTS_KEPT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._steps: deque[Kept] = deque()
        self._dropped = 0
        self._room = 0  # up to which number of steps the events need not be counted

    def keep(self, step: Kept) -> None:
        """Add what a step recorded; forget the oldest ones where these are too many."""
        self._steps.append(step)
        if len(self._steps) > self._room:
            self._trim()

    def _trim(self) -> None:
        with self._lock:
            size = len(self)
            if size > self._limit:  # some more, so that this is seldom
                while size > self._limit * 15 // 16 and len(self._steps) > 1:
                    size -= self._steps.popleft()[2]
                    self._dropped += 1
            largest = max((step[2] for step in list(self._steps)), default=1)
            self._room = len(self._steps) + max(0, self._limit - size) // max(largest, 1)

    def __len__(self) -> int:
        """The number of events."""
        return sum(size for _, _, size in list(self._steps))

    @property
    def source(self) -> Any:
        """What recorded the last step; None if there was none."""
        with self._lock:
            return self._steps[-1][0] if self._steps else None

    @property
    def latest(self) -> Recorded | None:
        """What the last step recorded; None if there was none."""
        with self._lock:
            if not self._steps:
                return None
            source, noted, _ = self._steps[-1]
        return source.record(noted)

    def clear(self) -> None:
        """Forget everything recorded so far; steps are counted from 0 again."""
        with self._lock:
            self._steps.clear()
            self._room = self._dropped = 0

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
            kept, dropped = list(self._steps), self._dropped
        steps = [
            (dropped + index, source.record(noted)) for index, (source, noted, _) in enumerate(kept)
        ]
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
        facts = {**meta, "steps": dropped + len(kept)}
        if dropped:
            facts["dropped_steps"] = dropped
            facts["note"] = (
                f"the first {dropped} of {dropped + len(kept)} steps are not in the trace: the "
                f"latest {self._limit} events are kept"
            )
        return Trace(tuple(events), facts, graph, tuple(used))
