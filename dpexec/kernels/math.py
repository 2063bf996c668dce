"""Functions of float32 numbers that compilers can put into vector instructions.

Range reduction and polynomials after Cephes (S. Moshier, 1989): errors of about one unit in the
last place.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.compiler import Compiler

from dpexec.kernels.machine import intrinsic

__all__ = [
    "apart",
    "exp",
    "inline",
    "lanes",
    "largest",
    "log",
    "norm",
    "normal",
    "sigmoid",
    "smallest",
    "tanh",
]

inline = numba.njit(inline="always", error_model="numpy")

# Sums and largest elements in as many lanes as the processor has: their order depends on it, but
# not on anything else.
lanes = numba.njit(fastmath={"reassoc", "nsz", "nnan"}, error_model="numpy")


class _Apart(Compiler):
    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


# Pointers among the arguments point to different arrays.
apart = numba.njit(pipeline_class=_Apart, error_model="numpy")

_F = np.float32
_LOG2E, _LN2_HIGH, _LN2_LOW = _F(1.44269504088896341), _F(0.693359375), _F(-2.12194440e-4)
_EXP = tuple(map(_F, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                      1.6666665459e-1, 5.0000001201e-1)))  # fmt: skip
_LOG = tuple(map(_F, (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
                      1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
                      3.3333331174e-1)))  # fmt: skip
_ZERO, _HALF, _ONE, _TWO = _F(0), _F(0.5), _F(1), _F(2)
_LARGEST, _SMALLEST, _SQRT_HALF = _F(88.3762626647949), _F(-87.3), _F(0.70710678118654752)
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
def exp(x: Any) -> Any:
    """The exponential; what is beyond float32 ends at its smallest and largest normal numbers."""
    x = min(max(x, _SMALLEST), _LARGEST)
    n = np.floor(x * _LOG2E + _HALF)
    r = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    y = ((((E0 * r + E1) * r + E2) * r + E3) * r + E4) * r + E5
    y = y * (r * r) + r + _ONE
    return y * _as_float(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


@inline
def _in_order(bits: Any) -> Any:
    """Integers that are ordered as the numbers are whose bits they get; its own inverse."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@numba.njit(error_model="numpy")
def largest(x: Any, start: int, n: int) -> Any:
    """The largest of ``n`` numbers: as integers, of which compilers compare many at once."""
    found = _in_order(_as_bits(x[start]))
    for j in range(1, n):
        found = max(found, _in_order(_as_bits(x[start + j])))
    return _as_float(_in_order(found))


@numba.njit(error_model="numpy")
def smallest(x: Any, start: int, n: int) -> Any:
    """The smallest of ``n`` numbers."""
    found = _in_order(_as_bits(x[start]))
    for j in range(1, n):
        found = min(found, _in_order(_as_bits(x[start + j])))
    return _as_float(_in_order(found))


@inline
def log(x: Any) -> Any:
    """The natural logarithm of a positive number, infinity included; -inf for 0, nan for less."""
    bits = _as_bits(max(x, _TINIEST))
    e = np.float32(np.int32((bits >> np.int32(23)) - np.int32(126)))
    m = _as_float(np.int32((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000)))
    low = m < _SQRT_HALF
    e = e - (_ONE if low else _ZERO)
    m = (m + m if low else m) - _ONE
    z = m * m
    y = (((((((L0 * m + L1) * m + L2) * m + L3) * m + L4) * m + L5) * m + L6) * m + L7) * m + L8
    y = y * m * z + e * _LN2_LOW - _HALF * z
    y = m + y + e * _LN2_HIGH
    y = y if x < _INFINITY else x
    return y if x > _ZERO else (-_INFINITY if x == _ZERO else np.float32(np.nan))


@inline
def normal(x: Any) -> Any:
    """The probability that a normal number is below ``x``, to 1e-7.

    Source: Abramowitz and Stegun, 1964, formula 7.1.26.
    """
    z = abs(x) * _SQRT_HALF
    t = _ONE / (_ONE + P * z)
    tail = ((((P5 * t + P4) * t + P3) * t + P2) * t + P1) * t * exp(-z * z) * _HALF
    return _ONE - tail if x > _ZERO else tail


@inline
def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``."""
    return _ONE / (_ONE + exp(-x))


@inline
def tanh(x: Any) -> Any:
    """The hyperbolic tangent: a polynomial near 0, exponentials elsewhere."""
    z = x * x
    near = ((((T0 * z + T1) * z + T2) * z + T3) * z + T4) * z * x + x
    a = abs(x)
    far = _ONE - _TWO / (exp(a + a) + _ONE)
    return near if a < _NEAR else (far if x > _ZERO else -far)


@lanes
def norm(x: Any, n: int) -> Any:
    """The root of the sum of the squares of ``n`` numbers."""
    total = _ZERO
    for i in range(n):
        total += x[i] * x[i]
    return np.sqrt(total)


P, P1, P2, P3, P4, P5 = map(_F, (0.3275911, 0.254829592, -0.284496736, 1.421413741,
                                 -1.453152027, 1.061405429))  # fmt: skip
T0, T1, T2, T3, T4 = map(_F, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2,
                              1.33314422036e-1, -3.33332819422e-1))  # fmt: skip
_NEAR = _F(0.625)
