"""Collects events while a run goes on; cheap enough to leave on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from dpexec.trace.events import Event, Kind, Trace


class Recorder:
    """Takes events from any thread.

    A call to `add` costs one append of a tuple, which the interpreter does atomically, so threads
    need no lock; Event objects are made only when somebody asks for the trace.

    Example:
        >>> recorder = Recorder()
        >>> recorder.add("relu", "op", 0, "fwd", 1.0, 1.5)
        >>> [event.name for event in recorder.trace()]
        ['relu']
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self,
        name: str,
        kind: Kind,
        device: int | None,
        key: str,
        start: float,
        stop: float,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        """Record that something ran from `start` to `stop` on the calling thread.

        Args:
            name: The op type or the name of the segment.
            kind: "task", "op" or "collective".
            device: Index of the device, None for all.
            key: Key of the task.
            start: Seconds, as `time.perf_counter()` gives them.
            stop: Seconds on the same clock.
            args: Further facts for whoever reads the trace.
        """
        self._rows.append((name, kind, device, key, start, stop, threading.get_ident(), args))

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Forget everything recorded so far."""
        self._rows.clear()

    def trace(self, **meta: Any) -> Trace:
        """Return what was recorded so far, ordered by start.

        Threads are numbered from 0 in the order in which they first appear, so that traces of equal
        runs can be compared.

        Args:
            meta: Facts about the run as a whole.
        """
        rows = sorted(self._rows, key=lambda row: (row[4], -row[5]))
        numbers: dict[int, int] = {}
        events = []
        for name, kind, device, key, start, stop, ident, args in rows:
            thread = numbers.setdefault(ident, len(numbers))
            events.append(Event(name, kind, device, key, start, stop, thread, args or {}))
        return Trace(tuple(events), meta)
