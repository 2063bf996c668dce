"""Numbers that must lie in a range, such as ids: looked at now, or later where that would wait.

A look at a number on a GPU waits until it is computed. So inside :func:`looking_later` such
checks are only begun; who runs the kernels looks at them before a variable changes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Check", "looking_later", "require_range"]


@dataclass(frozen=True)
class Check:
    """Numbers of a GPU that somebody has yet to look at.

    Args:
        extremes: the least and the largest, ``(2,)``.
        low: the least that is allowed.
        high: what all must be below.
        message: what is wrong with another one, with a place for it.
    """

    extremes: Any
    low: int
    high: int
    message: str

    def look(self, least: int, largest: int) -> None:
        """Raise ValueError if the extremes are not allowed.

        Args:
            least: of the numbers.
            largest: of the numbers.
        """
        if least < self.low or largest >= self.high:
            raise ValueError(self.message.format(least if least < self.low else largest))


class _Later(threading.local):
    checks: list[Check] | None = None


_later = _Later()


@contextlib.contextmanager
def looking_later() -> Iterator[list[Check]]:
    """Inside the block checks of numbers on GPUs are put into the list instead of made."""
    outer, _later.checks = _later.checks, []
    try:
        yield _later.checks
    finally:
        _later.checks = outer


def require_range(xp: Any, numbers: Any, low: int, high: int, message: str) -> None:
    """Refuse numbers outside a range.

    Args:
        xp: ``numpy`` or ``cupy``.
        numbers: integers.
        low: the least that is allowed.
        high: what all must be below.
        message: of the error, with a place for the number.

    Raises:
        ValueError: one is outside; of a GPU's perhaps later, see :func:`looking_later`.
    """
    if not numbers.size:
        return
    least, largest = numbers.min(), numbers.max()
    if xp is np or _later.checks is None:
        Check(None, low, high, message).look(int(least), int(largest))
    else:
        _later.checks.append(Check(xp.stack([least, largest]), low, high, message))
