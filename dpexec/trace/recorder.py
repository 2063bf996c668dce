"""Keeps what steps recorded while a run goes on; cheap enough to leave on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from dpexec.trace.events import Allocation, Event, Trace

__all__ = ["EVENTS_KEPT", "Kept", "Recorded", "Recorder", "Row"]

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


class Kept(NamedTuple):
    """A recorded step in the form that is quick to write; what it means is found out when asked.

    Args:
        binding: what ran.
        record: makes what the step recorded of what it noted.
        noted: the arguments.
        size: number of events.
    """

    binding: Any
    record: Callable[..., Recorded]
    noted: tuple[Any, ...]
    size: int


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
        """Add what a step recorded; forget the oldest ones where these are too many.

        Args:
            step: what it noted, and what that means.
        """
        self._steps.append(step)
        if len(self._steps) > self._room:
            self._trim()

    def _trim(self) -> None:
        with self._lock:
            size = len(self)
            if size > self._limit:  # some more, so that this is seldom
                while size > self._limit * 15 // 16 and len(self._steps) > 1:
                    size -= self._steps.popleft().size
                    self._dropped += 1
            largest = max((step.size for step in list(self._steps)), default=1)
            self._room = len(self._steps) + max(0, self._limit - size) // max(largest, 1)

    def __len__(self) -> int:
        """The number of events."""
        return sum(step.size for step in list(self._steps))

    @property
    def binding(self) -> Any:
        """What ran in the last step; None if there was none."""
        with self._lock:
            return self._steps[-1].binding if self._steps else None

    @property
    def latest(self) -> Recorded | None:
        """What the last step recorded; None if there was none."""
        with self._lock:
            if not self._steps:
                return None
            step = self._steps[-1]
        return step.record(*step.noted)

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

        Returns:
            The trace.
        """
        with self._lock:
            kept, dropped = list(self._steps), self._dropped
        steps = [step.record(*step.noted) for step in kept]
        memory = [item for recorded in steps for item in recorded.allocations()]
        memory.sort(key=lambda item: item.time)
        facts = {**meta, "steps": dropped + len(kept)}
        if dropped:
            facts["dropped_steps"] = dropped
            facts["note"] = (
                f"the first {dropped} of {dropped + len(kept)} steps are not in the trace: the "
                f"latest {self._limit} events are kept"
            )
        return Trace(_events(steps, dropped, bool(graph)), facts, graph, tuple(memory))


def _events(steps: Iterable[Recorded], first: int, with_nodes: bool) -> tuple[Event, ...]:
    """The events of some steps, in order of their start; of what starts together the longest first.

    Args:
        steps: what they recorded.
        first: number of the first of them.
        with_nodes: whether there is a graph that nodes can refer to.
    """
    rows = [(step, row) for step, recorded in enumerate(steps, first) for row in recorded.rows()]
    rows.sort(key=lambda item: (item[1][4], -item[1][5]))
    threads: dict[Any, int] = {}
    events = []
    for step, (name, kind, device, key, start, stop, ident, args, node) in rows:
        thread = threads.setdefault(ident, len(threads))
        number = node if with_nodes else None
        events.append(Event(name, kind, device, key, start, stop, thread, args, number, step))
    return tuple(events)
