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

__all__ = ["Check", "looking_later", "require_between"]


@dataclass(frozen=True)
class Check:
    """Numbers of a GPU that somebody has yet to look at.

    Args:
        extremes: the least and the largest, ``(2,)``.
        low: the least that is allowed.
        high: the largest that is allowed.
        message: what is wrong with another one, with a place for it.
    """

    extremes: Any
    low: float
    high: float
    message: str

    def look(self, least: float, largest: float) -> None:
        """Raise ValueError if the extremes are not allowed.

        Args:
            least: of the numbers.
            largest: of the numbers.
        """
        if not (self.low <= least and largest <= self.high):  # what is not a number is neither
            raise ValueError(self.message.format(largest if self.low <= least else least))


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


def require_between(xp: Any, numbers: Any, low: float, high: float, message: str) -> None:
    """Refuse numbers outside a range that its end belongs to.

    Args:
        xp: ``numpy`` or ``cupy``.
        numbers: of any type.
        low: the least that is allowed.
        high: the largest that is allowed.
        message: of the error, with a place for the number.

    Raises:
        ValueError: one is outside; of a GPU's perhaps later, see :func:`looking_later`.
    """
    if not numbers.size:
        return
    least, largest = numbers.min(), numbers.max()
    if xp is np or _later.checks is None:
        Check(None, low, high, message).look(least.item(), largest.item())
    else:
        _later.checks.append(Check(xp.stack([least, largest]), low, high, message))
