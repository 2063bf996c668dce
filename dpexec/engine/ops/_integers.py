"""Integers by the rules of C++, which Paddle uses: division, and numbers that become integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.core.ranges import require_between


def require_divisor(xp: Any, y: Any) -> None:
    """Reject divisors that are zero.

    Raises:
        ValueError: a divisor is zero, see :func:`~dpexec.engine.core.ranges.require_between`; the
            real Paddle crashes then.
    """
    require_between(xp, y == 0, False, False, "integer division by zero: Y has zeros")


def truncated_quotient(xp: Any, x: Any, y: Any) -> Any:
    """``x / y`` of integers, rounded towards zero.

    Raises:
        ValueError: ``y`` has zeros.
    """
    require_divisor(xp, y)
    quotient = x // y
    return quotient + ((quotient < 0) & (quotient * y != x)).astype(quotient.dtype)


def truncated_remainder(xp: Any, x: Any, y: Any) -> Any:
    """The remainder of :func:`truncated_quotient`, which has the sign of ``x``.

    Raises:
        ValueError: ``y`` has zeros.
    """
    require_divisor(xp, y)
    return xp.fmod(x, y)


def converted(kind: np.dtype[Any], value: float) -> Any:
    """A number as an element of a type.

    Fractions are cut off, and integers keep their lowest bits: -1 is 255 as uint8. Numbers beyond
    32 bits, or 64 for int64, become the smallest integer, as processors convert them.
    """
    if kind.kind not in "iu":
        return kind.type(value)
    limits = np.iinfo(np.int64 if kind.itemsize == 8 else np.int32)
    fits = math.isfinite(value) and limits.min <= value <= limits.max
    return np.int64(int(value) if fits else limits.min).astype(kind)
