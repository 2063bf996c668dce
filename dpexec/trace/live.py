"""Who watches training while it goes on: usually nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dpexec.trace.recorder import Recorder

__all__ = ["Watcher", "add", "remove", "watchers"]


class Watcher(Protocol):
    """What engines tell of their steps. It must be quick: they wait for it."""

    def begin(self, engine: Any, binding: Any) -> Recorder | None:
        """A step begins; returns a recorder if what happens in it is to be recorded.

        Args:
            engine: which runs it.
            binding: what runs.
        """

    def end(self, engine: Any, samples: Sequence[int], results: Sequence[Any] | None) -> None:
        """The step that began last is over.

        Args:
            engine: which ran it; its attribute ``monitor`` is the watcher's own.
            samples: how many every device had.
            results: what was fetched; None when the step failed.
        """


_watchers: tuple[Watcher, ...] = ()


def watchers() -> tuple[Watcher, ...]:
    """Who wants to hear of steps."""
    return _watchers


def add(watcher: Watcher) -> None:
    """Let all engines of the process tell somebody of their steps.

    Args:
        watcher: who; nothing happens if it is told already.
    """
    global _watchers
    if watcher not in _watchers:
        _watchers = (*_watchers, watcher)


def remove(watcher: Watcher) -> None:
    """Tell that one no more.

    Args:
        watcher: who; nothing happens if it is not told.
    """
    global _watchers
    _watchers = tuple(other for other in _watchers if other is not watcher)
