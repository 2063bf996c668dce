"""Observation of running engines, such as by a profiler or a live view.

A watcher is told about every engine: existing ones when it registers, new ones when they are made.
It then registers recorders or a counter with the engine's :class:`Observers`, which the engine
checks at each step.
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
    """Receives the notes of recorded steps; usually a recorder."""

    def keep(self, notes: Notes) -> None:
        """Take a step that has been recorded.

        Args:
            notes: the notes, whose latest step it is.
        """

    def follow(self, notes: OpenNotes) -> Steps:
        """Follow steps that will be recorded, without a call for each of them.

        Args:
            notes: the notes that the steps will write to.

        Returns:
            The followed steps; they are to be closed when no more will come.
        """


class Counter(Protocol):
    """Is called when steps begin and end. It must be fast, as the engine waits for it."""

    def begin(self, binding: Any) -> None:
        """A step begins.

        Args:
            binding: the binding that runs.
        """

    def end(self, samples: Sequence[int], results: Sequence[Any] | None) -> None:
        """The latest step ended.

        Args:
            samples: number of samples per device.
            results: the fetched values; None if the step failed.
        """


class Observers:
    """The observers of one engine's steps.

    Attributes:
        recorders: receive the recorded steps.
        counter: is called for every step; None if there is none.
    """

    __slots__ = ("counter", "recorders")

    def __init__(self) -> None:
        self.recorders: tuple[Keeper, ...] = ()
        self.counter: Counter | None = None

    def add(self, recorder: Keeper) -> None:
        """Record steps, from the next one on.

        Args:
            recorder: receives the steps.
        """
        with _lock:
            self.recorders = (*self.recorders, recorder)

    def remove(self, recorder: Keeper) -> None:
        """Record steps no longer.

        Args:
            recorder: the recorder; nothing happens if it was not added.
        """
        with _lock:
            self.recorders = tuple(other for other in self.recorders if other is not recorder)


class Watcher(Protocol):
    """Is told about all engines of the process."""

    def meet(self, engine: Any) -> None:
        """Take note of an engine.

        Args:
            engine: the engine; observers of its steps are added to its attribute ``observers``.
        """

    def part(self, engine: Any) -> None:
        """Stop watching an engine.

        Args:
            engine: the engine; the watcher must remove its observers from it.
        """


_watchers: tuple[Watcher, ...] = ()
_engines: WeakSet[Any] = WeakSet()


def watchers() -> tuple[Watcher, ...]:
    """The registered watchers."""
    return _watchers


def engines() -> list[Any]:
    """The engines of the process."""
    with _lock:
        return list(_engines)


def join(engine: Any) -> None:
    """Register an engine and tell all watchers about it.

    Args:
        engine: the engine, of which only a weak reference is kept.
    """
    with _lock:
        _engines.add(engine)
        for watcher in _watchers:
            watcher.meet(engine)


def add(watcher: Watcher) -> None:
    """Register a watcher for all engines of the process.

    Args:
        watcher: the watcher; nothing happens if it is registered already.
    """
    global _watchers
    with _lock:
        if watcher not in _watchers:
            _watchers = (*_watchers, watcher)
            for engine in engines():
                watcher.meet(engine)


def remove(watcher: Watcher) -> None:
    """Remove a watcher.

    Args:
        watcher: the watcher; nothing happens if it is not registered.
    """
    global _watchers
    with _lock:
        if watcher in _watchers:
            _watchers = tuple(other for other in _watchers if other is not watcher)
            for engine in engines():
                watcher.part(engine)
