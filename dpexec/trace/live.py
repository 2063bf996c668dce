"""Who watches training while it goes on: nobody, or one watcher for the whole process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dpexec.trace.recorder import Recorder

__all__ = ["Watcher", "set_watcher", "watcher"]


class Watcher(Protocol):
    """What engines tell of their steps. It must be quick: they wait for it."""

    def begin(self, engine: Any, binding: Any) -> Recorder | None:
        """A step begins; returns a recorder if what happens in it is to be recorded."""

    def end(self, engine: Any, samples: int, results: Sequence[Any] | None) -> None:
        """The step that began last is over.

        Args:
            engine: which ran it.
            samples: how many the batch had.
            results: what was fetched; None when the step failed.
        """


_watcher: Watcher | None = None


def watcher() -> Watcher | None:
    """Who wants to hear of steps."""
    return _watcher


def set_watcher(new: Watcher | None) -> None:
    """Tell all engines of the process who wants to hear of steps; None: nobody any more."""
    global _watcher
    _watcher = new
