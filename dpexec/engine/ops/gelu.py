"""``gelu`` and ``erf``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.ops import _erf
from dpexec.engine.ops._edges import INFINITE, among
from dpexec.engine.ops._unary import LIBRARIES, bends, unary
from dpexec.engine.ops.sigmoid import sigmoid_array

_STEEP = 40.0
_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


@unary(
    "erf",
    lambda r: r.normal((3, 4)) * 2,
    (
        np.array([-50.0, -0.5, 0.0, 0.3, 1.0, 2.5]),
        np.array([-1.0, -0.5204999, 0.0, 0.32862676, 0.8427008, 0.999593]),
    ),
    ulps=4,
    grad_lod="own",
)
def erf(xp: Any, x: Any) -> Any:
    """The error function. Source: Paddle op ``erf``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.erf(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.9953,  0.    ,  0.8427], dtype=float32)
    """
    return _erf.erf(xp, x)


@erf.grad("X", "Out@GRAD", ulps=6)
def erf_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out * 2 / sqrt(pi) * exp(-x**2)``."""
    return d_out * _erf.bell(xp, x, 1.0) * (2 / math.sqrt(math.pi))


@unary(
    "gelu",
    lambda r: r.normal((3, 4)),
    (
        np.array([-3.0, -0.5, 0.0, 1.0, 7.0]),
        np.array([-0.0040496886, -0.15426877, 0.0, 0.84134471, 7.0]),
    ),
    settings=({}, {"approximate": True}),
    attrs=LIBRARIES,
    ulps=128,
    edges=((among(np.inf), "X@GRAD", INFINITE),),
    capturable=True,
    grad_lod="own",
    fuses=True,
)
def gelu(xp: Any, x: Any, *, approximate: bool = False) -> Any:
    """``x`` times the probability that a normal number is below ``x``.

    ``approximate`` replaces the distribution function by
    ``sigmoid(2 * sqrt(2/pi) * (x + 0.044715 * x**3))``, which equals the formula with ``tanh``.
    Source: Hendrycks, Gimpel, 2016; Paddle op ``gelu``.

    Args:
        approximate: use an approximation by ``tanh`` in place of the error function.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.gelu(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.0455,  0.    ,  0.8413], dtype=float32)
    """
    return x * _distribution(xp, x, approximate)


def _distribution(xp: Any, x: Any, approximate: bool) -> Any:
    if approximate:
        return sigmoid_array(xp, 2 * _TANH_SCALE * x * (1 + _TANH_CUBE * x * x))
    return _erf.normal(xp, x)


@gelu.grad("X", "Out@GRAD", ulps=128)
def gelu_grad(xp: Any, x: Any, d_out: Any, *, approximate: bool = False) -> Any:
    """``d_out * (P + x * p)`` with the distribution function ``P`` and its derivative ``p``."""
    distribution = _distribution(xp, x, approximate)
    if approximate:
        x = xp.clip(x, -_STEEP, _STEEP)  # beyond that the density is 0
        inner = _TANH_SCALE * (1 + 3 * _TANH_CUBE * x * x)
        rest = _distribution(xp, -x, True)
        density = 2 * distribution * rest * inner
    else:
        density = _erf.bell(xp, x) * (1 / math.sqrt(2 * math.pi))
    return d_out * (distribution + x * density)


@bends(gelu_grad)
def gelu_grad_grad(xp: Any, x: Any, *, approximate: bool = False) -> Any:
    """``d_out * ddx * (2 * p + x * q)`` for X, with ``q`` the derivative of ``p``."""
    if not approximate:
        return _erf.bell(xp, x) * (1 / math.sqrt(2 * math.pi)) * (2 - x * x)
    distribution = _distribution(xp, x, True)
    inner = _TANH_SCALE * (1 + 3 * _TANH_CUBE * x * x)
    density = 2 * distribution * (1 - distribution) * inner
    slope = 6 * _TANH_SCALE * _TANH_CUBE * x / inner + 2 * (1 - 2 * distribution) * inner
    return density * (2 + x * slope)
