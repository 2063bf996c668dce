"""Division of integers by the rules of C++, which Paddle uses."""

from __future__ import annotations

from typing import Any

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
