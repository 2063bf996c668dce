"""The data of pages for training on threads: of a given executor, or of any training."""

from __future__ import annotations

import weakref
from typing import Any

from dpexec.dashboard.hub import HUB
from dpexec.dashboard.monitor import Monitor, Told
from dpexec.dashboard.reports import Report

__all__ = ["LocalSource"]


class LocalSource:
    """The state of an executor of this process, or of any training in it.

    Args:
        executor: a ``ParallelExecutor`` or ``CompiledProgram``, referenced weakly; None follows any
            training.

    Raises:
        TypeError: the executor is of another kind.
        ValueError: the executor trains on a cluster, whose scheduler has the page.
    """

    def __init__(self, executor: Any = None) -> None:
        compiled = getattr(executor, "_compiled_program", executor)
        if compiled is not None and not hasattr(compiled, "_compile"):
            raise TypeError(
                "the live view takes a ParallelExecutor or a CompiledProgram, but received "
                f"{type(executor).__name__}; without an argument it shows whatever trains"
            )
        strategy = getattr(compiled, "_exec_strategy", None)
        client: Any = getattr(strategy, "scheduler", None)
        if hasattr(client, "dashboard_link"):
            link = str(client.dashboard_link).removesuffix("/status")
            raise ValueError(f"it trains on a cluster, whose dashboard has the page: {link}/dpexec")
        self._compiled = None if compiled is None else weakref.ref(compiled)
        self._told: weakref.WeakKeyDictionary[Monitor, Told] = weakref.WeakKeyDictionary()
        self._pages = 0
        self.close = weakref.finalize(self, HUB.leave, HUB.join())

    def report(self) -> Report | None:
        """The state, and the news since the last call; None if nothing has run."""
        monitor = self._monitor()
        if monitor is None:
            return None
        return monitor.report(self._told.setdefault(monitor, Told()), self._pages > 0)

    def _monitor(self) -> Monitor | None:
        if self._compiled is None:
            return HUB.latest()
        compiled = self._compiled()
        engine = None if compiled is None else compiled._engine
        return None if engine is None else engine.observers.counter

    @property
    def gone(self) -> bool:
        """Whether the executor no longer exists, so that no news will come."""
        return self._compiled is not None and self._compiled() is None

    def show(self, pages: int) -> None:
        """Set the number of pages that show training; with pages, steps are recorded in detail.

        Args:
            pages: number of open pages.
        """
        self._pages = pages
