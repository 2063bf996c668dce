"""``ceil``, ``floor`` and ``round``: gradients are zero wherever they exist."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ops._unary import LIBRARIES, unary

_NUMBERS = np.array([-2.5, -1.5, -0.3, 0.5, 1.0, 1.5, 2.5])


@unary(
    "ceil",
    lambda r: r.distinct((3, 4)) + 0.05,
    (_NUMBERS, np.array([-2.0, -1.0, 0.0, 1.0, 1.0, 2.0, 3.0])),
    attrs=LIBRARIES,
)
def ceil(xp: Any, x: Any) -> Any:
    """The smallest whole number that is not below ``x``. Source: Paddle op ``ceil``."""
    return xp.ceil(x)


@ceil.grad("Out@GRAD")
def ceil_grad(xp: Any, d_out: Any) -> Any:
    """Zeros."""
    return xp.zeros_like(d_out)


@unary(
    "floor",
    lambda r: r.distinct((3, 4)) + 0.05,
    (_NUMBERS, np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 1.0, 2.0])),
    attrs=LIBRARIES,
)
def floor(xp: Any, x: Any) -> Any:
    """The largest whole number that is not above ``x``. Source: Paddle op ``floor``."""
    return xp.floor(x)


@floor.grad("Out@GRAD")
def floor_grad(xp: Any, d_out: Any) -> Any:
    """Zeros."""
    return xp.zeros_like(d_out)


@unary(
    "round",
    lambda r: r.distinct((3, 4)) + 0.05,
    (_NUMBERS, np.array([-2.0, -2.0, 0.0, 0.0, 1.0, 2.0, 2.0])),
    deviates={
        "Out": (
            "rounds halves to even or away from 0, depending on their position in the "
            "array; dpexec rounds them to even"
        )
    },
    attrs=LIBRARIES,
)
def round(xp: Any, x: Any) -> Any:
    """The nearest whole number, of two equally near ones the even one.

    (Paddle itself takes now the even one, now the one further from 0, depending on the position in
    the tensor.) Source: Paddle op ``round``.
    """
    return xp.rint(x)


@round.grad("Out@GRAD")
def round_grad(xp: Any, d_out: Any) -> Any:
    """Zeros."""
    return xp.zeros_like(d_out)
