"""The watchers of this process: pages, servers and clusters join, engines get monitors."""

from __future__ import annotations

import itertools
from typing import Any

from dpexec.dashboard.monitor import Monitor
from dpexec.engine.trace import live

__all__ = ["HUB", "Hub"]


class Hub:
    """Keeps a monitor for every engine while there are watchers."""

    def __init__(self) -> None:
        self._joined: set[int] = set()
        self._numbers = itertools.count()

    def join(self) -> int:
        """Add a watcher; returns its number for :meth:`leave`."""
        number = next(self._numbers)
        self._joined.add(number)
        live.add(self)
        return number

    def leave(self, number: int) -> None:
        """Remove a watcher; counting ends with the last one.

        Args:
            number: the result of :meth:`join`.
        """
        self._joined.discard(number)
        if not self._joined:
            live.remove(self)

    def latest(self) -> Monitor | None:
        """The monitor of the engine that trains, or else of the one that ran last."""
        found = (engine.observers.counter for engine in live.engines())
        ran = [monitor for monitor in found if monitor is not None and monitor.has_run]
        return max(ran, key=lambda monitor: (monitor.trains, monitor.ended), default=None)

    def meet(self, engine: Any) -> None:
        """See :class:`dpexec.engine.trace.live.Watcher`."""
        engine.observers.counter = Monitor(engine)

    def part(self, engine: Any) -> None:
        """See :class:`dpexec.engine.trace.live.Watcher`."""
        monitor, engine.observers.counter = engine.observers.counter, None
        engine.observers.remove(monitor)


HUB = Hub()
"""The hub of this process."""
