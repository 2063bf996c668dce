"""Exponential and logarithm of float64 numbers, which compilers can vectorize.

Libraries differ in the last bits of theirs from machine to machine; these depend on the family of
processors alone. Range reduction and quotients follow Cephes (S. Moshier, 1989). NaN gives NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import Lazily, inline
from dpexec.engine.kernels.machine import intrinsic

ir, types = Lazily("llvmlite.ir"), Lazily("numba.types")

__all__ = ["exp64", "log64"]

_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93145751953125e-1, 1.42860682030941723212e-6
_P0, _P1, _P2 = 1.26177193074810590878e-4, 3.02994407707441961300e-2, 9.99999999999999999910e-1
_Q0, _Q1, _Q2 = 3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1
_SMALL, _LARGE = -708.0, 709.0
_A0, _A1, _A2 = 1.01875663804580931796e-4, 4.97494994976747001425e-1, 4.70579119878881725854
_A3, _A4, _A5 = 1.44989225341610930846e1, 1.79368678507819816313e1, 7.70838733755885391666
_B0, _B1, _B2 = 1.12873587189167450590e1, 4.52279145837532221105e1, 8.29875266912776603211e1
_B3, _B4 = 7.11544750618563894466e1, 2.31251620126765340583e1
_ROOT = 0.70710678118654752440
_LOG2_HIGH, _LOG2_LOW = 0.693359375, 2.121944400546905827679e-4
_MANTISSA, _HALF = np.int64((1 << 52) - 1), np.int64(1022 << 52)


@intrinsic
def _as_double(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def _as_long(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


@inline
def exp64(x: Any) -> Any:
    """The exponential from -708 to 709, 0 below, constant above."""
    small = x < _SMALL
    x = _SMALL if small else x
    x = _LARGE if x > _LARGE else x
    n = np.floor(x * _LOG2E + 0.5)
    r = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    z = r * r
    y = r * ((_P0 * z + _P1) * z + _P2)
    y = y / ((((_Q0 * z + _Q1) * z + _Q2) * z + 2.0) - y)
    y = (1.0 + (y + y)) * _as_double((np.int64(n) + np.int64(1023)) << np.int64(52))
    return 0.0 if small else y


@inline
def log64(x: Any) -> Any:
    """The natural logarithm of a positive normal number."""
    bits = _as_long(x)
    e = np.float64((bits >> np.int64(52)) - np.int64(1022))
    m = _as_double((bits & _MANTISSA) | _HALF)
    low = m < _ROOT
    e = e - (1.0 if low else 0.0)
    m = (m + m if low else m) - 1.0
    z = m * m
    p = ((((_A0 * m + _A1) * m + _A2) * m + _A3) * m + _A4) * m + _A5
    q = ((((m + _B0) * m + _B1) * m + _B2) * m + _B3) * m + _B4
    y = m * (z * p / q) - e * _LOG2_LOW - 0.5 * z
    return (m + y + e * _LOG2_HIGH) if x == x else x
