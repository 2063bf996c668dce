"""Random numbers for a seed, bit for bit those of the real Paddle.

Paddle draws from C++'s ``std::minstd_rand`` with the distributions of libstdc++, element by
element. This module does the same arithmetic on whole arrays, in the same precision and order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.core.random import minstd

Array = np.ndarray[Any, Any]

_ENGINE_RANGE = 2**31 - 2


def canonical(seed: int, count: int, dtype: Any) -> Array:
    """``std::generate_canonical``: numbers in [0, 1), one draw each, or two for float64."""
    unsigned = seed & 0xFFFFFFFF
    if np.dtype(dtype) == np.float64:
        draws = minstd(unsigned, 2 * count).astype(np.float64) - 1.0
        return (draws[0::2] + draws[1::2] * _ENGINE_RANGE) / (float(_ENGINE_RANGE) ** 2)
    return (minstd(unsigned, count) - np.uint64(1)).astype(np.float32) / np.float32(_ENGINE_RANGE)


def uniform(seed: int, count: int, low: float, high: float, dtype: Any) -> Array:
    """``std::uniform_real_distribution``."""
    low, high = _parameters(dtype, low, high)
    return canonical(seed, count, dtype) * (high - low) + low


def _parameters(dtype: Any, *values: float) -> list[Any]:
    """Convert attributes, which are single precision, to the type of the computation."""
    return [np.dtype(dtype).type(np.float32(value)) for value in values]


def normal(seed: int, count: int, mean: float, std: float, dtype: Any) -> Array:
    """``std::normal_distribution``: the polar method (Marsaglia, Bray, 1964).

    Points are drawn in a square until one falls into the circle. It yields two numbers; the number
    from its second coordinate comes first.
    """
    kind = np.dtype(dtype).type
    points = int(0.7 * count) + 32
    while True:
        draws = kind(2) * canonical(seed, 2 * points, dtype) - kind(1)
        x, y = draws[0::2], draws[1::2]
        radius = x * x + y * y
        inside = np.flatnonzero((radius <= 1) & (radius != 0))[: (count + 1) // 2]
        if 2 * len(inside) >= count:
            break
        points *= 2
    radius = radius[inside]
    logarithm = np.log(radius) if kind is np.float64 else _log_float32(radius)
    factor = np.sqrt(kind(-2) * logarithm / radius)
    pairs = np.stack([y[inside] * factor, x[inside] * factor], axis=1)
    mean, std = _parameters(dtype, mean, std)
    return pairs.reshape(-1)[:count] * std + mean


def truncated_normal(seed: int, count: int, mean: float, std: float) -> Array:
    """Normal numbers at most two standard deviations from the mean, float32.

    They are computed by the inverse distribution function from uniform numbers. Paddle uses the
    central formula of algorithm AS 241 (Wichura, 1988) for all numbers, also in the tails.
    """
    single = np.float32
    smallest = float(np.finfo(single).tiny)
    low, high = (single((1 + math.erf(x / math.sqrt(2))) / 2) for x in (-2.0, 2.0))
    probability = low + (high - low) * uniform(seed, count, smallest, 1.0, single)
    inverse = _inverse_erf(single(2) * probability - single(1))
    scaled = math.sqrt(2) * inverse.astype(np.float64) * float(single(std))
    return (scaled + float(single(mean))).astype(single)


_AS241_NUMERATOR = (
    3.3871328727963666080e0,
    1.3314166789178437745e2,
    1.9715909503065514427e3,
    1.3731693765509461125e4,
    4.5921953931549871457e4,
    6.7265770927008700853e4,
    3.3430575583588128105e4,
    2.5090809287301226727e3,
)
_AS241_DENOMINATOR = (
    1.0,
    4.2313330701600911252e1,
    6.8718700749205790830e2,
    5.3941960214247511077e3,
    2.1213794301586595867e4,
    3.9307895800092710610e4,
    2.8729085735721942674e4,
    5.2264952788528545610e3,
)


def _inverse_erf(x: Array) -> Array:
    """AS 241's ratio of polynomials, rescaled from the normal distribution to ``erf``."""
    r = (0.180625 - 0.25 * x.astype(np.float64) ** 2).astype(np.float32)
    numerator = [c / (2 * math.sqrt(2)) for c in _AS241_NUMERATOR]
    return x * _polynomial(numerator, r) / _polynomial(_AS241_DENOMINATOR, r)


def _polynomial(coefficients: Any, x: Array) -> Array:
    """Horner's rule in single precision, lowest power first."""
    value = np.full(x.shape, coefficients[-1], dtype=np.float32)
    for coefficient in coefficients[-2::-1]:
        value = value * x + np.float32(coefficient)
    return value


_LOG_START = 0x3F330000  # 0.69921875: where the sixteen intervals of an octave start
_LOG_SHIFT = 19  # bits of a float's pattern inside an interval
_LOG_CUBIC = (-0.25089342214237154, 0.333456765744066, -0.4999997485802103)


def _log_table() -> tuple[Array, Array]:
    """Reciprocals of the middles of the intervals and logarithms of the middles."""
    edges = (_LOG_START + (np.arange(17) << _LOG_SHIFT)).astype(np.int32)
    first = edges[:-1].view(np.float32).astype(np.float64)
    last = (edges[1:] - 1).astype(np.int32).view(np.float32).astype(np.float64)
    middles = (first + last) / 2
    middles[9] = 1.0  # so that log(1) is exactly 0
    middles[10] = 1.0534233  # off the middle in glibc
    return 1 / middles, np.log(middles)


_LOG_RECIPROCAL, _LOG_MIDDLE = _log_table()


def _log_float32(x: Array) -> Array:
    """The ``logf`` of glibc (2.27 and later); other logarithms differ from it in the last bit.

    In double precision, ``log(x) = log(middle of the interval) + log(1 + r)`` with a polynomial
    of degree four for the second part.
    """
    bits = x.view(np.int32)
    offset = bits - np.int32(_LOG_START)
    interval, octave = (offset >> _LOG_SHIFT) & 15, offset >> 23
    reduced = (bits - (octave << 23)).view(np.float32).astype(np.float64)
    r = reduced * _LOG_RECIPROCAL[interval] - 1
    whole = _LOG_MIDDLE[interval] + octave * math.log(2)
    a, b, c = _LOG_CUBIC
    square = r * r
    tail = a * square + (b * r + c)
    return (tail * square + (whole + r)).astype(np.float32)
