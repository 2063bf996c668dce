"""``tanh``, ``stanh``, ``tanh_shrink`` and ``softsign``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.ops._edges import NO_NUMBER, NUMBERS, SMALL, among
from dpexec.engine.ops._unary import LIBRARIES, bends, unary

_NEAR, _TERMS = 0.625, 9


@unary(
    "tanh",
    lambda r: r.normal((3, 4)),
    (np.array([-50.0, 0.0, 0.5]), np.array([-1.0, 0.0, 0.46211717])),
    attrs=LIBRARIES,
    ulps=3,
    edges=((among(np.nan), "Out X@GRAD", NO_NUMBER),),
    capturable=True,
    precision="gray",
    fuses=True,
    quantized="inputs outputs",
)
def tanh(xp: Any, x: Any) -> Any:
    """The hyperbolic tangent. Source: Paddle op ``tanh``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.tanh(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.964 ,  0.    ,  0.7616], dtype=float32)
    """
    return xp.tanh(x)


@tanh.grad("Out", "Out@GRAD", ulps=3)
def tanh_grad(xp: Any, out: Any, d_out: Any) -> Any:
    """``d_out * (1 - out**2)``."""
    grad = 1 + out
    grad *= 1 - out
    grad *= d_out
    return grad


@bends(tanh_grad, "Out")
def tanh_grad_grad(xp: Any, out: Any) -> Any:
    """``-2 * d_out * ddx * out`` for Out and ``ddx * (1 - out**2)`` for ``d_out``."""
    return -2 * out


@unary(
    "stanh",
    lambda r: r.normal((3, 4)),
    (np.array([-50.0, 0.0, 1.0]), np.array([-1.7159, 0.0, 1.003767])),
    settings=({}, {"scale_a": 0.5, "scale_b": 2.0}),
    ulps=4,
    edges=((among(np.nan), "Out X@GRAD", NO_NUMBER),),
    fuses=True,
)
def stanh(xp: Any, x: Any, *, scale_a: float = 0.67, scale_b: float = 1.7159) -> Any:
    """``scale_b * tanh(scale_a * x)``. Source: Paddle op ``stanh``.

    Args:
        scale_a: the factor of ``x``.
        scale_b: results lie between ``-scale_b`` and ``scale_b``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.stanh(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-1.4957,  0.    ,  1.0038], dtype=float32)
    """
    return xp.tanh(x * scale_a) * scale_b


@stanh.grad("X", "Out@GRAD", ulps=64)
def stanh_grad(
    xp: Any, x: Any, d_out: Any, *, scale_a: float = 0.67, scale_b: float = 1.7159
) -> Any:
    """``d_out * scale_a * scale_b * (1 - tanh(scale_a * x)**2)``."""
    small = xp.exp(-2 * xp.abs(x * scale_a))  # 1 - tanh**2 would lose what is near 1
    return d_out * (4 * small / ((1 + small) * (1 + small))) * (scale_a * scale_b)


@unary(
    "tanh_shrink",
    lambda r: r.normal((3, 4)),
    (np.array([-50.0, 0.0, 1.0]), np.array([-49.0, 0.0, 0.23840585])),
    attrs=LIBRARIES,
    ulps=10,
    edges=(
        (NUMBERS * 1e-5, "Out", SMALL),
        (among(np.nan), "X@GRAD", NO_NUMBER),
    ),
    fuses=True,
)
def tanh_shrink(xp: Any, x: Any) -> Any:
    """``x - tanh(x)``. Source: Paddle op ``tanh_shrink``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.tanh_shrink(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-1.036 ,  0.    ,  0.2384], dtype=float32)
    """
    square = xp.minimum(x * x, _NEAR * _NEAR)
    series = xp.zeros_like(square)
    for k in range(_TERMS, 0, -1):  # of x * cosh(x) - sinh(x), whose terms add up
        series = series * square + 2 * k / math.factorial(2 * k + 1)
    near = series * square * x / xp.cosh(xp.minimum(xp.abs(x), _NEAR))
    return xp.where(xp.abs(x) < _NEAR, near, x - xp.tanh(x))


@tanh_shrink.grad("X", "Out@GRAD", ulps=6)
def tanh_shrink_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out * tanh(x)**2``."""
    t = xp.tanh(x)
    return d_out * t * t


@unary(
    "softsign",
    lambda r: r.away_from(0.0, (3, 4)),
    (np.array([-3.0, 0.0, 1.0]), np.array([-0.75, 0.0, 0.5])),
    attrs=LIBRARIES,
    ulps=3,
    capturable=True,
    fuses=True,
)
def softsign(xp: Any, x: Any) -> Any:
    """``x / (1 + |x|)``. Source: Paddle op ``softsign``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.softsign(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.6667,  0.    ,  0.5   ], dtype=float32)
    """
    return x / (1 + xp.abs(x))


@softsign.grad("X", "Out@GRAD", ulps=4)
def softsign_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out / (1 + |x|)**2``."""
    size = 1 + xp.abs(x)
    return d_out / (size * size)
