"""Marks of failed runs in what is recorded, so that traces and reports say what failed."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping
from typing import Any, Protocol

from dpexec.engine.compile.bindings.failed_steps import FailedStep, failure_of
from dpexec.engine.core.errors import EnforceNotMet, EOFException, mistake_behind
from dpexec.engine.trace.live import Observers
from dpexec.engine.trace.recorder import Recorder

__all__ = ["note_failure"]

_MADE_BY = "  made by "
_LONGEST = 2000  # characters of a text


class Begun(Protocol):
    """The recording of a step that has begun."""

    def broken_off(self, error: BaseException, facts: Mapping[str, Any]) -> FailedStep:
        """The notes of the step, which has failed."""


class Runner(Protocol):
    """What made the steps: it has the recording of a step until that ends, also if it failed."""

    begun: Any


def note_failure(
    runner: Runner,
    observers: Observers,
    error: BaseException,
    began: int = 0,
    feeding: bool = False,
) -> None:
    """Let recorders keep a failed run; watchers that take samples of steps want complete ones.

    Args:
        runner: it made the steps of the run.
        observers: of the steps.
        error: what was raised; the end of a reader is no failure.
        began: when the run began, in nanoseconds; 0: just now.
        feeding: whether the feeds were made.
    """
    begun: Begun | None = runner.begun
    runner.begun = None
    recorders = [each for each in observers.recorders if isinstance(each, Recorder)]
    if not recorders or isinstance(error, EOFException):
        return
    facts = {**_facts(error), "while": "feeding"} if feeding else _facts(error)
    if begun is not None:
        notes = begun.broken_off(error, facts)
    else:
        now = time.perf_counter_ns()
        start = began or now
        notes = FailedStep(None, [start], failure_of(error, facts, start, now))
    for recorder in recorders:
        recorder.keep(notes)


def _facts(error: BaseException) -> dict[str, Any]:
    """Class and text of an error, and the user's line, without folders of the machine."""
    text = str(error).partition(f"\n{_MADE_BY}")[0].strip() or type(error).__name__
    facts: dict[str, Any] = {"error": type(error).__name__, "text": text[:_LONGEST]}
    if isinstance(error, EnforceNotMet) and error.line is not None:
        facts["line"] = error.line
    cause = mistake_behind(error) if isinstance(error, EnforceNotMet) else None
    frames = traceback.extract_tb(cause.__traceback__) if cause is not None else []
    if frames:
        facts["raised"] = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}"
    return facts
