"""Checks that numbers such as ids lie in a range: at once, or later if they lie on a GPU.

Reading a number from a GPU waits until it is computed. So inside :func:`looking_later` such checks
are only started; the code that runs the kernels reads their results before a variable changes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["Check", "looking_later", "require_between"]


@dataclass(frozen=True)
class Check:
    """A check of numbers on a GPU whose result has not been read yet.

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
        if not (self.low <= least and largest <= self.high):  # NaN satisfies neither comparison
            raise ValueError(self.message.format(largest if self.low <= least else least))


class _Later(threading.local):
    checks: list[Check] | None = None


_later = _Later()


@contextlib.contextmanager
def looking_later() -> Iterator[list[Check]]:
    """Inside the block, checks of numbers on GPUs are added to a list and made later."""
    outer, _later.checks = _later.checks, []
    try:
        yield _later.checks
    finally:
        _later.checks = outer


def require_between(xp: Any, numbers: Any, low: float, high: float, message: str) -> None:
    """Refuse numbers outside a range that includes both ends.

    Args:
        xp: ``numpy`` or ``cupy``.
        numbers: of any type.
        low: the least that is allowed.
        high: the largest that is allowed.
        message: of the error, with a place for the number.

    Raises:
        ValueError: a number is outside. For numbers on a GPU it may be raised later, see
            :func:`looking_later`.
    """
    if not numbers.size:
        return
    least, largest = numbers.min(), numbers.max()
    if xp is np or _later.checks is None:
        Check(None, low, high, message).look(least.item(), largest.item())
    else:
        _later.checks.append(Check(xp.stack([least, largest]), low, high, message))
