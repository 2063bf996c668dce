"""The recorder of the whole process, while profiling is on: every engine writes into it."""

from __future__ import annotations

from dpexec.trace.recorder import Recorder

__all__ = ["active", "recorders", "start", "stop"]

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


def recorders(*others: Recorder | None) -> list[Recorder]:
    """The recorder of the process and the others, as many of them as there are."""
    return [recorder for recorder in (*others, _active) if recorder is not None]
