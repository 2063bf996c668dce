"""Who watches this process: pages, servers and clusters join, engines get monitors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from dpexec.dashboard.monitor import Monitor
from dpexec.trace import live
from dpexec.trace.recorder import Recorder

__all__ = ["HUB", "Hub"]


class Hub:
    """Has a monitor for every engine that runs, while somebody watches this process.

    Attributes:
        viewers: how many pages that this process feeds are open.
    """

    def __init__(self) -> None:
        self._engines: WeakSet[Any] = WeakSet()
        self._pages: dict[int, int] = {}  # that are open, by the number of who watches
        self.viewers = 0
        self._numbers = itertools.count()

    def join(self) -> int:
        """Somebody watches from now on; returns the number to leave with."""
        number = next(self._numbers)
        self._pages[number] = 0
        live.add(self)
        return number

    def show(self, number: int, pages: int) -> None:
        """Somebody who watches shows training on some pages from now on.

        Args:
            number: what :meth:`join` returned; after :meth:`leave` it is passed over.
            pages: how many are open.
        """
        if number in self._pages:
            self._pages[number] = pages
            self.viewers = sum(self._pages.values())

    def leave(self, number: int) -> None:
        """That one watches no more; with the last one, recording ends.

        Args:
            number: what :meth:`join` returned.
        """
        self.show(number, 0)
        self._pages.pop(number, None)
        if not self._pages:
            live.remove(self)
            for engine in list(self._engines):
                engine.monitor = None
            self._engines.clear()

    def monitor(self, engine: Any) -> Monitor:
        """The monitor of an engine.

        Args:
            engine: which.

        Returns:
            The one it has, or a new one.
        """
        if engine.monitor is None:
            engine.monitor = Monitor(engine)
            self._engines.add(engine)
        found: Monitor = engine.monitor
        return found

    def latest(self) -> Monitor | None:
        """The monitor of what trains, or else of what ran last."""
        found = [self.monitor(engine) for engine in list(self._engines)]
        ran = [monitor for monitor in found if monitor.has_run]
        return max(ran, key=lambda monitor: (monitor.trains, monitor.last), default=None)

    def begin(self, engine: Any, binding: Any) -> Recorder | None:
        """See :class:`dpexec.trace.live.Watcher`."""
        monitor = engine.monitor or self.monitor(engine)
        recorder: Recorder | None = monitor.begin(binding, self.viewers > 0)
        return recorder

    def end(self, engine: Any, samples: Sequence[int], results: Sequence[Any] | None) -> None:
        """See :class:`dpexec.trace.live.Watcher`."""
        monitor = engine.monitor
        if monitor is not None and monitor.began is not None:  # else who watches came meanwhile
            monitor.end(samples, results)


HUB = Hub()
"""That of this process."""
