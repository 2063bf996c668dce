"""The recorder of the whole process, while profiling is on: every engine writes into it."""

from __future__ import annotations

from dpexec.trace.recorder import Recorder

__all__ = ["active", "start", "stop"]

_active: Recorder | None = None


def start() -> None:
    """Record what every engine of the process does from now on."""
    global _active
    _active = Recorder()


def active() -> Recorder | None:
    """What records the whole process, None while profiling is off."""
    return _active


def stop() -> None:
    """Record no longer."""
    global _active
    _active = None
