"""``ceil``, ``floor`` and ``round``: gradients are zero wherever they exist."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dpexec.engine.ops._unary import LIBRARIES, unary

_NUMBERS = np.array([-2.5, -1.5, -0.3, 0.5, 1.0, 1.5, 2.5])

_rounding = partial(
    unary,
    make=lambda r: r.distinct((3, 4)) + 0.05,
    attrs=LIBRARIES,
    capturable=True,
)


@_rounding(
    "ceil",
    known=(_NUMBERS, np.array([-2.0, -1.0, 0.0, 1.0, 1.0, 2.0, 3.0])),
)
def ceil(xp: Any, x: Any) -> Any:
    """The smallest whole number that is not below ``x``. Source: Paddle op ``ceil``."""
    return xp.ceil(x)


@_rounding(
    "floor",
    known=(_NUMBERS, np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 1.0, 2.0])),
)
def floor(xp: Any, x: Any) -> Any:
    """The largest whole number that is not above ``x``. Source: Paddle op ``floor``."""
    return xp.floor(x)


@_rounding(
    "round",
    known=(_NUMBERS, np.array([-2.0, -2.0, 0.0, 0.0, 1.0, 2.0, 2.0])),
    deviates={
        "Out": (
            "rounds halves to even or away from 0, depending on their position in the "
            "array; dpexec rounds them to even"
        )
    },
)
def round(xp: Any, x: Any) -> Any:
    """The nearest whole number, of two equally near ones the even one.

    (Paddle itself takes now the even one, now the one further from 0, depending on the position in
    the tensor.) Source: Paddle op ``round``.
    """
    return xp.rint(x)


def _zeros(xp: Any, d_out: Any) -> Any:
    """Zeros."""
    return xp.zeros_like(d_out)


for _definition in (ceil, floor, round):
    _definition.grad("Out@GRAD")(_zeros)
