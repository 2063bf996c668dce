"""Ctrl-C waits where it would leave something half done, and ends commands without a traceback.

Python raises KeyboardInterrupt between two bytecodes of the main thread, wherever that is.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # makes no enums, which every step would pay
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

__all__ = ["INTERRUPTED", "Uninterrupted", "quiet_ends", "set_handler", "their_handler"]

_SIGINT = int(signal.SIGINT)
INTERRUPTED = 128 + _SIGINT
"""Exit code of commands after Ctrl-C, as shells have it."""
their_handler: Callable[[int], Any] = _signal.getsignal
"""Like ``signal.getsignal``."""
set_handler: Callable[[int, Any], Any] = _signal.signal
"""Like ``signal.signal``."""


class Uninterrupted:
    """A block that interrupts do not break off: the first one comes through at its end.

    The block must end by itself, and soon. It defers SIGINT on the main thread, the only one in
    which Python raises interrupts, for any handler: Python's, that of asyncio, the user's. Blocks
    may be nested.

    Example:
        >>> parameters = {"w": 1.0, "b": 1.0}
        >>> with Uninterrupted():
        ...     parameters["w"] -= 0.5
        ...     parameters["b"] -= 0.5
    """

    __slots__ = ("_before", "_frame", "_waits")

    def __init__(self) -> None:
        self._before: Any = None  # the handler that is told at the end
        self._waits = False
        self._frame: FrameType | None = None

    def __enter__(self) -> Uninterrupted:
        if threading.get_ident() == threading.main_thread().ident:  # faster than current_thread
            before = their_handler(_SIGINT)
            if callable(before):  # else nothing is raised here
                set_handler(_SIGINT, self._wait)
                self._before = before
        return self

    @property
    def waits(self) -> bool:
        """Whether an interrupt waits for the end of the block."""
        return self._waits

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """A part of the block that interrupts may break off."""
        if self._before is None:
            yield
            return
        set_handler(_SIGINT, self._before)
        try:
            yield
        finally:
            set_handler(_SIGINT, self._wait)

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            return
        set_handler(_SIGINT, self._before)
        frame, self._frame = self._frame, None  # it may know this block
        if self._waits:
            self._before(signal.SIGINT, frame)

    def _wait(self, number: int, frame: FrameType | None) -> None:
        if not self._waits:
            self._waits, self._frame = True, frame


@contextlib.contextmanager
def quiet_ends() -> Iterator[None]:
    """End without a traceback on Ctrl-C, on a closed pipe, and on unencodable output.

    Raises:
        SystemExit: after Ctrl-C, or when the reader of the output has closed the pipe.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may not have µ, · or →
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
