"""``gelu`` and ``erf``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.ops import _erf
from dpexec.ops._unary import LIBRARIES, bends, unary

_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


@unary(
    "erf",
    lambda r: r.normal((3, 4)) * 2,
    (
        np.array([-50.0, -0.5, 0.0, 0.3, 1.0, 2.5]),
        np.array([-1.0, -0.5204999, 0.0, 0.32862676, 0.8427008, 0.999593]),
    ),
)
def erf(xp: Any, x: Any) -> Any:
    """The error function. Source: Paddle op ``erf``."""
    return _erf.erf(xp, x)


@erf.grad("X", "Out@GRAD")
def erf_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out * 2 / sqrt(pi) * exp(-x**2)``."""
    return d_out * xp.exp(-x * x) * (2 / math.sqrt(math.pi))


@unary(
    "gelu",
    lambda r: r.normal((3, 4)),
    (
        np.array([-3.0, -0.5, 0.0, 1.0, 7.0]),
        np.array([-0.0040496886, -0.15426877, 0.0, 0.84134471, 7.0]),
    ),
    settings=({}, {"approximate": True}),
    attrs=LIBRARIES,
)
def gelu(xp: Any, x: Any, *, approximate: bool = False) -> Any:
    """``x`` times the probability that a normal number is below ``x``.

    ``approximate`` replaces the distribution function by
    ``(1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3))) / 2``. Source: Hendrycks, Gimpel, 2016;
    Paddle op ``gelu``.
    """
    return x * _distribution(xp, x, approximate)


def _distribution(xp: Any, x: Any, approximate: bool) -> Any:
    if approximate:
        out = xp.tanh(_TANH_SCALE * (x + _TANH_CUBE * x * x * x))
    else:
        out = _erf.erf(xp, x * math.sqrt(0.5))
    out += 1
    out *= 0.5
    return out


@gelu.grad("X", "Out@GRAD")
def gelu_grad(xp: Any, x: Any, d_out: Any, *, approximate: bool = False) -> Any:
    """``d_out * (P + x * p)`` with the distribution function ``P`` and its derivative ``p``."""
    distribution = _distribution(xp, x, approximate)
    if approximate:
        inner = _TANH_SCALE * (1 + 3 * _TANH_CUBE * x * x)
        density = 2 * distribution * (1 - distribution) * inner
    else:
        density = xp.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return d_out * (distribution + x * density)


@bends(gelu_grad)
def gelu_grad_grad(xp: Any, x: Any, *, approximate: bool = False) -> Any:
    """``d_out * ddx * (2 * p + x * q)`` for X, with ``q`` the derivative of ``p``."""
    if not approximate:
        return xp.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi)) * (2 - x * x)
    distribution = _distribution(xp, x, True)
    inner = _TANH_SCALE * (1 + 3 * _TANH_CUBE * x * x)
    density = 2 * distribution * (1 - distribution) * inner
    slope = 6 * _TANH_SCALE * _TANH_CUBE * x / inner + 2 * (1 - 2 * distribution) * inner
    return density * (2 + x * slope)
