"""The error function and the normal distribution on arrays: NumPy has neither."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

# W. J. Cody, Rational Chebyshev approximations for the error function, Mathematics of
# Computation 23 (1969). Highest power first.
SMALL_NUMERATOR = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
SMALL_DENOMINATOR = (
    1.0,
    2.36012909523441209e1,
    2.44024637934444173e2,
    1.28261652607737228e3,
    2.84423683343917062e3,
)
LARGE_NUMERATOR = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
LARGE_DENOMINATOR = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_FAR_NUMERATOR = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_FAR_DENOMINATOR = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346047e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)
_SMALL, _ONE_FROM_HERE = 0.5, 6.0
_FAR, _ZERO_FROM_HERE = 4.0, 39.0


def erf(xp: Any, x: Any) -> Any:
    """``2 / sqrt(pi)`` times the integral of ``exp(-t**2)`` from 0 to ``x``, in the type of ``x``.

    Below 0.5 by a rational function of ``x**2``, above it as 1 minus ``exp(-x**2)`` times a
    rational function.
    """
    if x.dtype == xp.float16:  # cannot hold the coefficients
        return erf(xp, x.astype(xp.float32)).astype(x.dtype)
    size = xp.minimum(xp.abs(x), _ONE_FROM_HERE)
    square = size * size
    low = xp.minimum(square, _SMALL**2)
    small = x * _polynomial(SMALL_NUMERATOR, low) / _polynomial(SMALL_DENOMINATOR, low)
    ratio = _polynomial(LARGE_NUMERATOR, size) / _polynomial(LARGE_DENOMINATOR, size)
    large = xp.copysign(1 - xp.exp(-square) * ratio, x)
    return xp.where(size < _SMALL, small, large)


def normal(xp: Any, x: Any) -> Any:
    """The probability that a normal number is below ``x``, however small it is."""
    if x.dtype == xp.float16:
        return normal(xp, x.astype(xp.float32)).astype(x.dtype)
    size = xp.minimum(xp.abs(x), _ZERO_FROM_HERE) * math.sqrt(0.5)
    low = xp.minimum(size, _SMALL)
    square = low * low
    near = low * _polynomial(SMALL_NUMERATOR, square) / _polynomial(SMALL_DENOMINATOR, square)
    middle = xp.minimum(size, _FAR)
    ratio = _polynomial(LARGE_NUMERATOR, middle) / _polynomial(LARGE_DENOMINATOR, middle)
    high = xp.maximum(size, _FAR)
    inverse = 1 / (high * high)
    far = inverse * _polynomial(_FAR_NUMERATOR, inverse) / _polynomial(_FAR_DENOMINATOR, inverse)
    far = (1 / math.sqrt(math.pi) - far) / high
    tail = bell(xp, x) * xp.where(size < _FAR, ratio, far)
    tail = 0.5 * xp.where(size < _SMALL, 1 - near, tail)
    return xp.where(x > 0, 1 - tail, tail)


def bell(xp: Any, x: Any, factor: float = 0.5) -> Any:
    """``exp(-factor * x * x)``, without the rounding error of a square, which may be large."""
    size = xp.minimum(xp.abs(x), _ZERO_FROM_HERE)
    high = xp.round(size * 16) / 16  # its square is exact
    rest = (size - high) * (size + high)
    return xp.exp(high * high * -factor) * xp.exp(rest * -factor)


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    value = coefficients[0] * x
    for coefficient in coefficients[1:-1]:
        value += coefficient
        value *= x
    value += coefficients[-1]
    return value
