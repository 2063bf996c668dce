"""Functions of float32 numbers that compilers can vectorize.

Range reduction and polynomials follow Cephes (S. Moshier, 1989). Errors are about two units in the
last place over the whole range of results. NaN gives NaN, infinity gives the limit, and results
below the smallest normal number are 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import Lazily, called, inline
from dpexec.engine.kernels.machine import intrinsic
from dpexec.engine.ops import _erf
from dpexec.engine.ops._recurrent import SATURATED

ir, types = Lazily("llvmlite.ir"), Lazily("numba.types")

__all__ = [
    "against",
    "bell",
    "erf",
    "erf_slope",
    "exp",
    "exp_bounded",
    "expm1",
    "gate",
    "inner_product",
    "lanes",
    "largest",
    "log",
    "log1p",
    "log1p_of_any",
    "norm",
    "normal",
    "sigmoid",
    "slope",
    "smallest",
    "steepness",
    "tanh",
    "tanh_shrink",
]

# Sums and largest elements are computed in as many lanes as the family of processors has: their
# order depends on the family only.
lanes = called(fastmath=("nnan", "nsz", "reassoc"))


_F = np.float32
_LOG2E, _LN2_HIGH, _LN2_LOW = _F(1.44269504088896341), _F(0.693359375), _F(-2.12194440e-4)
_EXP = tuple(map(_F, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                      1.6666665459e-1, 5.0000001201e-1)))  # fmt: skip
_LOG = tuple(map(_F, (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
                      1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
                      3.3333331174e-1)))  # fmt: skip
_ZERO, _QUARTER, _HALF, _ONE, _TWO = _F(0), _F(0.25), _F(0.5), _F(1), _F(2)
_SQRT_HALF = _F(0.70710678118654752)
_LARGEST, _SMALLEST = _F(89), _F(-104)  # beyond them exp is infinity and 0
_UPPER, _LOWER = _F(88.3762626647949), _F(-87.3)  # between them powers of 2 are normal numbers
_LOG1P_FROM = _F(0.41421356)
_TINIEST = _F(1.17549435e-38)
_INFINITY = _F(np.inf)
E0, E1, E2, E3, E4, E5 = _EXP
L0, L1, L2, L3, L4, L5, L6, L7, L8 = _LOG


@intrinsic
def _as_float(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def _as_bits(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), generate


@inline
def _scale(n: Any) -> Any:
    """2 to the power of a whole number from -126 to 127."""
    return _as_float(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


@inline
def _rest(x: Any, n: Any) -> Any:
    """``exp(x - n * log(2)) - 1``, for the nearest ``n``."""
    r = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    y = ((((E0 * r + E1) * r + E2) * r + E3) * r + E4) * r + E5
    return y * (r * r) + r


@inline
def exp(x: Any) -> Any:
    """The exponential."""
    x = _LARGEST if x > _LARGEST else x  # NaN stays NaN
    x = _SMALLEST if x < _SMALLEST else x
    n = np.floor(x * _LOG2E + _HALF)
    y = _rest(x, n) + _ONE
    part = np.int32(n) >> np.int32(1)  # 2**n itself may be out of range
    return y * _scale(part) * _scale(np.int32(n) - part)


@inline
def exp_bounded(x: Any) -> Any:
    """The exponential from -87.3 to 88.37, constant beyond these: a fifth faster than ``exp``."""
    x = _UPPER if x > _UPPER else x  # NaN stays NaN
    x = _LOWER if x < _LOWER else x
    n = np.floor(x * _LOG2E + _HALF)
    return (_rest(x, n) + _ONE) * _scale(n)


@inline
def expm1(x: Any) -> Any:
    """``exp(x) - 1`` for ``x`` up to 88.37, constant beyond it."""
    x = _UPPER if x > _UPPER else x  # NaN stays NaN
    x = _LOWER if x < _LOWER else x
    n = np.floor(x * _LOG2E + _HALF)
    power = _scale(n)
    return _rest(x, n) * power + (power - _ONE)


@inline
def _in_order(bits: Any) -> Any:
    """The bits of a float as an integer that is ordered like the float; its own inverse."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@called()
def largest(x: Any, start: int, n: int) -> Any:
    """The largest of ``n`` numbers, compared as integers, which compilers vectorize."""
    found = _in_order(_as_bits(x[start]))
    for j in range(1, n):
        found = max(found, _in_order(_as_bits(x[start + j])))
    return _as_float(_in_order(found))


@called()
def smallest(x: Any, start: int, n: int) -> Any:
    """The smallest of ``n`` numbers."""
    found = _in_order(_as_bits(x[start]))
    for j in range(1, n):
        found = min(found, _in_order(_as_bits(x[start + j])))
    return _as_float(_in_order(found))


@inline
def log(x: Any) -> Any:
    """The natural logarithm; -inf for 0, NaN for negative numbers, infinity for infinity."""
    bits = _as_bits(max(x, _TINIEST))
    e = np.float32(np.int32((bits >> np.int32(23)) - np.int32(126)))
    m = _as_float(np.int32((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000)))
    low = m < _SQRT_HALF
    e = e - (_ONE if low else _ZERO)
    y = _log_of((m + m if low else m) - _ONE, e)
    y = y if x < _INFINITY else x
    return y if x > _ZERO else (-_INFINITY if x == _ZERO else np.float32(np.nan))


@inline
def _log_of(m: Any, e: Any) -> Any:
    """``log((1 + m) * 2**e)`` for ``m`` from -0.3 to 0.42."""
    z = m * m
    y = (((((((L0 * m + L1) * m + L2) * m + L3) * m + L4) * m + L5) * m + L6) * m + L7) * m + L8
    y = y * m * z + e * _LN2_LOW - _HALF * z
    return m + y + e * _LN2_HIGH


@inline
def log1p(x: Any) -> Any:
    """``log(1 + x)`` for ``x`` from -0.25 to 1."""
    far = x > _LOG1P_FROM
    return _log_of((x - _ONE) * _HALF if far else x, _ONE if far else _ZERO)


@inline
def log1p_of_any(x: Any) -> Any:
    """``log(1 + x)``; -inf for -1, NaN for smaller numbers."""
    near = log1p(min(max(x, -_QUARTER), _ONE))
    return near if x >= -_QUARTER and x <= _ONE else log(_ONE + x)


@inline
def bell(x: Any) -> Any:
    """``exp(-x * x / 2)`` with an exact square: its rounding error would grow up to 87 times."""
    a = abs(x)
    a = _FAR if a > _FAR else a
    high = _as_float(np.int32(_as_bits(a) & np.int32(-4096)))  # its square is exact
    d = (a - high) * (a + high) * _HALF
    return exp(-_HALF * (high * high)) * (_ONE - d + d * d * (_HALF - d * SIXTH))


@inline
def normal(x: Any) -> Any:
    """The probability that a normal number is below ``x``.

    The ratio to the density is a polynomial of ``1 / (1 + 0.275 * abs(x))``, to 4e-8.
    """
    t = _ONE / (_ONE + P * abs(x))
    y = (((((((P8 * t + P7) * t + P6) * t + P5) * t + P4) * t + P3) * t + P2) * t + P1) * t + P0
    tail = y * t * bell(x)
    return _ONE - tail if x > _ZERO else tail


@inline
def erf(x: Any) -> Any:
    """The error function, by the rational functions of ``ops/_erf.py``."""
    a = abs(x)
    a = _SIX if a > _SIX else a
    z = min(a * a, _QUARTER)
    y = ((((A0 * z + A1) * z + A2) * z + A3) * z + A4) * x
    near = y / ((((z + B1) * z + B2) * z + B3) * z + B4)
    y = ((((((C0 * a + C1) * a + C2) * a + C3) * a + C4) * a + C5) * a + C6) * a + C7
    w = ((((((a + D1) * a + D2) * a + D3) * a + D4) * a + D5) * a + D6) * a + D7
    rest = _ONE - exp(-a * a) * ((y * a + C8) / (w * a + D8))
    return near if a < _HALF else (rest if x > _ZERO else -rest)


@inline
def erf_slope(x: Any) -> Any:
    """``exp(-x * x)``, without the rounding error of the square, times 2 by the root of pi."""
    a = abs(x)
    a = _FAR if a > _FAR else a
    high = _as_float(np.int32(_as_bits(a) & np.int32(-4096)))
    return exp(-(high * high)) * exp((high - a) * (a + high)) * _TWO_BY_ROOT_OF_PI


@inline
def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``."""
    return _ONE / (_ONE + exp_bounded(-x))


@inline
def against(x: Any) -> Any:
    """``1 - sigmoid(x)``, accurate also near 0; it is free if ``sigmoid(x)`` is computed, too."""
    y = exp_bounded(-x) * sigmoid(x)
    y = _ZERO if x > -_LOWER else y
    return _ONE if x < _LOWER else y


@inline
def gate(x: Any) -> Any:
    """``sigmoid`` with a bounded argument: beyond the bounds gates are saturated anyway."""
    return sigmoid(_SHUT if x < _SHUT else (_OPEN if x > _OPEN else x))


@inline
def tanh(x: Any) -> Any:
    """The hyperbolic tangent: a polynomial near 0, exponentials elsewhere."""
    z = x * x
    near = ((((T0 * z + T1) * z + T2) * z + T3) * z + T4) * z * x + x
    a = abs(x)
    far = _ONE - _TWO / (exp_bounded(a + a) + _ONE)
    return near if a < _NEAR else (far if x > _ZERO else -far)


@inline
def steepness(x: Any) -> Any:
    """The derivative of the hyperbolic tangent, accurate also where the tangent is nearly 1."""
    e = exp(-_TWO * abs(x))
    return _FOUR * e / ((_ONE + e) * (_ONE + e))


@inline
def slope(x: Any) -> Any:
    """The derivative of the hyperbolic tangent; it is free if ``tanh(x)`` is computed, too."""
    a = abs(x)
    rest = _TWO / (exp_bounded(a + a) + _ONE)
    return rest * (_TWO - rest)


@inline
def tanh_shrink(x: Any) -> Any:
    """``x - tanh(x)``; near 0 by the series of ``x * cosh(x) - sinh(x)``, which cancels nothing."""
    z = x * x
    y = ((((S4 * z + S3) * z + S2) * z + S1) * z + S0) * z * x
    e = exp_bounded(abs(x))
    near = y * _TWO / (e + _ONE / e)
    return near if abs(x) < _NEAR else x - tanh(x)


@lanes
def inner_product(x: Any, start: int, y: Any, begin: int, n: int) -> Any:
    """The sum of ``n`` products, of ``x`` from ``start`` on and ``y`` from ``begin`` on."""
    total = _ZERO
    for j in range(n):
        total += x[start + j] * y[begin + j]
    return total


@lanes
def norm(x: Any, n: int) -> Any:
    """The root of the sum of the squares of ``n`` numbers."""
    total = _ZERO
    for i in range(n):
        total += x[i] * x[i]
    return np.sqrt(total)


P, SIXTH, _FAR = _F(0.275), _F(1 / 6), _F(20)
P0, P1, P2, P3, P4, P5, P6, P7, P8 = map(_F, (0.10970523, 0.109748046, 0.101525188, 0.0814955951,
                                              0.0821489219, -0.0269621492, 0.123290812,
                                              -0.107500994, 0.0265493699))  # fmt: skip
A0, A1, A2, A3, A4 = map(_F, _erf.SMALL_NUMERATOR)
_, B1, B2, B3, B4 = map(_F, _erf.SMALL_DENOMINATOR)
C0, C1, C2, C3, C4, C5, C6, C7, C8 = map(_F, _erf.LARGE_NUMERATOR)
_, D1, D2, D3, D4, D5, D6, D7, D8 = map(_F, _erf.LARGE_DENOMINATOR)
_SIX, _TWO_BY_ROOT_OF_PI = _F(6), _F(1.12837916709551)
T0, T1, T2, T3, T4 = map(_F, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2,
                              1.33314422036e-1, -3.33332819422e-1))  # fmt: skip
_NEAR, _FOUR = _F(0.625), _F(4)
S0, S1, S2, S3, S4 = map(_F, (1 / 3, 4 / 120, 6 / 5040, 8 / 362880, 10 / 39916800))
_NEAR = _F(0.625)
_SHUT, _OPEN = map(_F, SATURATED)
