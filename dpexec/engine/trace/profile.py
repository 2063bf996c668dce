"""The process-wide recorder: while profiling is on, every engine writes into it."""

from __future__ import annotations

from typing import Any

from dpexec.engine.trace import live
from dpexec.engine.trace.recorder import Recorder

__all__ = ["active", "start", "stop"]


class _Profile:
    """Watches all engines with one recorder."""

    def __init__(self) -> None:
        self.recorder = Recorder()

    def meet(self, engine: Any) -> None:
        """See :class:`dpexec.engine.trace.live.Watcher`."""
        engine.observers.add(self.recorder)

    def part(self, engine: Any) -> None:
        """See :class:`dpexec.engine.trace.live.Watcher`."""
        engine.observers.remove(self.recorder)


_active: _Profile | None = None


def start() -> None:
    """Start recording all engines of the process."""
    global _active
    stop()
    _active = _Profile()
    live.add(_active)


def active() -> Recorder | None:
    """The process-wide recorder, None while profiling is off."""
    return None if _active is None else _active.recorder


def stop() -> None:
    """Stop recording."""
    global _active
    if _active is not None:
        live.remove(_active)
    _active = None
