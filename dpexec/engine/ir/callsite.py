"""Where in the user's own code an operator was made, or something is to be warned of."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_EXAMPLES = os.path.join(_PACKAGE, "examples") + os.sep


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line of source text.

    Args:
        filename: as Python reports it.
        line: counted from 1.
        function: name of the enclosing function, or ``<module>``.
    """

    filename: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The text of the line, empty when the file cannot be read."""
        return linecache.getline(self.filename, self.line).strip()

    def __str__(self) -> str:
        return f'File "{self.filename}", line {self.line}, in {self.function}\n    {self.source}'


def user_callsite() -> CallSite | None:
    """The innermost frame outside dpexec, whose examples count as user code; None without one.

    The operator of a ``with`` block is made when it ends: its line is that of the ``with``.
    """
    frame, _ = _first_outside(sys._getframe(1))
    if frame is None:
        return None
    return CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def warn(message: str) -> None:
    """Warn of something, at the user's line."""
    _, distance = _first_outside(sys._getframe(1))
    warnings.warn(message, stacklevel=2 + distance)


def _first_outside(frame: FrameType | None) -> tuple[FrameType | None, int]:
    """The first frame that is the user's, from one on outwards; and how far from that it is."""
    distance = 0
    while frame is not None:
        name = frame.f_code.co_filename
        own = name.startswith(_PACKAGE) and not name.startswith(_EXAMPLES)
        if not own and name != contextlib.__file__:
            break
        frame, distance = frame.f_back, distance + 1
    return frame, distance
