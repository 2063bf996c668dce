"""Levels that stand for real numbers: shared by fake quantization and dequantization."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import require

TINY = 1e-30
"""Scales up to this value are treated as 0, which has no inverse."""


def check_bits(bit_length: int) -> None:
    """Reject unsupported numbers of bits."""
    require(1 <= bit_length <= 16, f"bit_length is {bit_length}, but must lie between 1 and 16")


def largest_level(bit_length: int) -> int:
    """The level of the scale itself: levels lie between it and its negative."""
    return 2 ** (bit_length - 1) - 1


def abs_max(xp: Any, x: Any, axis: tuple[int, ...] | None = None) -> Any:
    """The largest magnitude in ``x``."""
    return xp.maximum(x.max(axis=axis), -x.min(axis=axis))


def levels_of(xp: Any, x: Any, scale: Any, bit_length: int) -> Any:
    """The nearest level of every element of ``x``, whose magnitudes are at most ``scale``.

    Ties round to even, as in NumPy. Paddle does the same in vector instructions; at the end of an
    array, and on GPUs, its ties round away from 0.
    """
    one = x.dtype.type(1)
    inverse = one / xp.where(scale > TINY, scale, scale + x.dtype.type(TINY))
    made = x * (x.dtype.type(largest_level(bit_length)) * inverse)
    return xp.rint(made, out=made)
