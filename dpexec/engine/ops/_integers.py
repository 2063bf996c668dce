"""Division of integers as C++ does it, and with it Paddle."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.ranges import require_between


def require_divisor(xp: Any, y: Any) -> None:
    """Refuse zeros.

    Raises:
        ValueError: there is one, as :func:`~dpexec.engine.core.ranges.require_between` says; the
            real Paddle ends the process then.
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
    """What :func:`truncated_quotient` leaves: it has the sign of ``x``.

    Raises:
        ValueError: ``y`` has zeros.
    """
    require_divisor(xp, y)
    return xp.fmod(x, y)
