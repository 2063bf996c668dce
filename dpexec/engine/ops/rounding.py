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
    """The smallest whole number that is not below ``x``. Source: Paddle op ``ceil``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-1.6, 0.4, 2.6], "float32"))
        ...     out = fluid.layers.ceil(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([-1.,  1.,  3.], dtype=float32)]
    """
    return xp.ceil(x)


@_rounding(
    "floor",
    known=(_NUMBERS, np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 1.0, 2.0])),
)
def floor(xp: Any, x: Any) -> Any:
    """The largest whole number that is not above ``x``. Source: Paddle op ``floor``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-1.6, 0.4, 2.6], "float32"))
        ...     out = fluid.layers.floor(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([-2.,  0.,  2.], dtype=float32)]
    """
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
    """The nearest whole number; halves are rounded to the even one.

    (Paddle rounds halves to the even one, or away from 0, depending on the position in the tensor.)
    Source: Paddle op ``round``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-1.6, 0.4, 2.6], "float32"))
        ...     out = fluid.layers.round(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([-2.,  0.,  3.], dtype=float32)]
    """
    return xp.rint(x)


def _zeros(xp: Any, d_out: Any) -> Any:
    """Zeros."""
    return xp.zeros_like(d_out)


for _definition in (ceil, floor, round):
    _definition.grad("Out@GRAD")(_zeros)
