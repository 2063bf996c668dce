"""The recorder of the whole process, while profiling is on: every engine writes into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpexec.trace.events import Kind
from dpexec.trace.recorder import Recorder

__all__ = ["active", "start", "stop", "with_profile"]

_active: Recorder | None = None


class _Both(Recorder):
    """Adds what it takes to two recorders."""

    __slots__ = ("_recorders",)

    def __init__(self, one: Recorder, other: Recorder) -> None:
        super().__init__()
        self._recorders = (one, other)

    def add(
        self,
        name: str,
        kind: Kind,
        device: int | None,
        key: str,
        start: float,
        stop: float,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        for recorder in self._recorders:
            recorder.add(name, kind, device, key, start, stop, args)


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


def with_profile(*others: Recorder | None) -> Recorder | None:
    """The recorder of the process, or one of the others, or one that adds to all there are."""
    found = None
    for recorder in (*others, _active):
        if recorder is not None:
            found = recorder if found is None else _Both(found, recorder)
    return found
