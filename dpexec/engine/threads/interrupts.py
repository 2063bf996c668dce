"""Ctrl-C during a run never leaves a parameter half updated.

Before the parameters are overwritten it stops the run, afterwards the step is completed.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from dpexec.engine.core.interrupts import set_handler, their_handler

__all__ = ["InterruptGate"]

_SIGINT = int(signal.SIGINT)

_TORN = (
    "interrupted again, in the middle of updates: some variables may have the values of this step, "
    "and others those of the one before"
)


class InterruptGate:
    """Guards one step; a context manager around it.

    Works where Python delivers KeyboardInterrupt: on the main thread, with Python's own handler.
    A second Ctrl-C is not held back; where it stops updates, it says so.

    Attributes:
        between_tasks: the main thread works on tasks together with others: then it must not leave
            in the middle, and the run stops before the next task.
    """

    def __init__(self) -> None:
        self.between_tasks = False
        self._claims: list[str] = []  # the first one decides; appending is atomic
        self._pending = False
        self._before: Any = None

    def __enter__(self) -> InterruptGate:
        if their_handler(_SIGINT) is not signal.default_int_handler:
            return self
        if threading.current_thread() is threading.main_thread():
            self._before = set_handler(_SIGINT, self._interrupted)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        if self._before is not None:
            set_handler(_SIGINT, self._before)
        if self._pending and kind is not KeyboardInterrupt:
            raise KeyboardInterrupt

    def begin_updates(self) -> None:
        """Called before anything is overwritten, by every task that does so.

        Raises:
            RuntimeError: the run was interrupted before.
        """
        self._claims.append("update")
        if self._claims[0] != "update":
            raise RuntimeError("the run was interrupted before its updates")

    def begin_task(self) -> None:
        """Called before every task, and every round of a loop.

        Raises:
            KeyboardInterrupt: the run was interrupted, and nothing is overwritten yet.
        """
        if self._pending and self._claims[0] == "stop":
            raise KeyboardInterrupt

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._claims.append("stop")
        at_once = self._claims[0] == "stop" and not self.between_tasks
        if self._pending and self._claims[0] == "update":
            raise KeyboardInterrupt(_TORN)
        if at_once or self._pending:
            raise KeyboardInterrupt
        self._pending = True
