"""Who watches training while it goes on: usually nobody.

Watchers get to know every engine, when it is made or when they come. What they want of an engine
they leave with its :class:`Observers`, where the engine looks at each step.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol
from weakref import WeakSet

from dpexec.engine.trace.recorder import Notes, OpenNotes, Steps

__all__ = [
    "Counter",
    "Keeper",
    "Observers",
    "Watcher",
    "add",
    "engines",
    "join",
    "remove",
    "watchers",
]

_lock = threading.RLock()


class Keeper(Protocol):
    """What is told what steps noted: usually a recorder."""

    def keep(self, notes: Notes) -> None:
        """A step has been recorded.

        Args:
            notes: where it noted that, as the latest one.
        """

    def follow(self, notes: OpenNotes) -> Steps:
        """Steps are going to note something; it is not said when each of them ends.

        Args:
            notes: where they note it.

        Returns:
            Those that it will have kept, when it is told that there will be no more.
        """


class Counter(Protocol):
    """What is told when steps begin and end. It must be quick: the engine waits for it."""

    def begin(self, binding: Any) -> None:
        """A step begins.

        Args:
            binding: what runs.
        """

    def end(self, samples: Sequence[int], results: Sequence[Any] | None) -> None:
        """The step that began last is over.

        Args:
            samples: how many every device had.
            results: what was fetched; None when the step failed.
        """


class Observers:
    """Those that look at the steps of one engine.

    Attributes:
        recorders: for them steps are recorded.
        counter: hears of every step; None: nobody counts them.
    """

    __slots__ = ("counter", "recorders")

    def __init__(self) -> None:
        self.recorders: tuple[Keeper, ...] = ()
        self.counter: Counter | None = None

    def add(self, recorder: Keeper) -> None:
        """Record steps, from the next one on.

        Args:
            recorder: for whom.
        """
        with _lock:
            self.recorders = (*self.recorders, recorder)

    def remove(self, recorder: Keeper) -> None:
        """Record steps no longer.

        Args:
            recorder: for whom; nothing happens if they are not recorded.
        """
        with _lock:
            self.recorders = tuple(other for other in self.recorders if other is not recorder)


class Watcher(Protocol):
    """Who wants to know the engines of the process."""

    def meet(self, engine: Any) -> None:
        """An engine is there.

        Args:
            engine: which; its attribute ``observers`` takes whoever is to look at its steps.
        """

    def part(self, engine: Any) -> None:
        """It is not to be watched any more.

        Args:
            engine: whose observers are to be left.
        """


_watchers: tuple[Watcher, ...] = ()
_engines: WeakSet[Any] = WeakSet()


def watchers() -> tuple[Watcher, ...]:
    """Who watches."""
    return _watchers


def engines() -> list[Any]:
    """The engines of the process."""
    with _lock:
        return list(_engines)


def join(engine: Any) -> None:
    """Let everybody watch an engine who wants to.

    Args:
        engine: which; it is forgotten when nobody else knows it.
    """
    with _lock:
        _engines.add(engine)
        for watcher in _watchers:
            watcher.meet(engine)


def add(watcher: Watcher) -> None:
    """Let somebody watch all engines of the process.

    Args:
        watcher: who; nothing happens if it does so already.
    """
    global _watchers
    with _lock:
        if watcher not in _watchers:
            _watchers = (*_watchers, watcher)
            for engine in engines():
                watcher.meet(engine)


def remove(watcher: Watcher) -> None:
    """Let that one watch no more.

    Args:
        watcher: who; nothing happens if it does not.
    """
    global _watchers
    with _lock:
        if watcher in _watchers:
            _watchers = tuple(other for other in _watchers if other is not watcher)
            for engine in engines():
                watcher.part(engine)
