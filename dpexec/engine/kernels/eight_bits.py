"""Numbers of 8 bits that stand for real numbers, and the factors between both.

Sums of products of integers are exact. So results have the same bits however the library divides
the work, and a result of 8 bits differs from that of the same operator on real levels by one at
most, where a number lies between two levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Constant, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Number, Octets, kernel
from dpexec.engine.kernels.onednn import BIAS, WEIGHTS
from dpexec.engine.kernels.onednn_epilogues import scales_of
from dpexec.engine.ops._eight_bits import back_scales

__all__ = ["Scaling", "is_small"]


def is_small(value: Value) -> bool:
    """Whether a value holds numbers of 8 bits."""
    return value.dtype in (np.int8, np.uint8)


@kernel
def _levels(n: Count, factor: Number, low: Number, high: Number, x: Floats, out: Octets) -> int:
    """``x * factor`` as the nearest integers in a range; ties go to even ones."""
    for i in range(n):
        value = np.rint(x[i] * factor)
        value = high if value > high else value
        value = low if value < low else value
        out[i] = np.uint8(np.int32(value))
    return 0


@kernel
def _signed(n: Count, factor: Number, x: Octets, out: Floats) -> int:
    """Signed integers as real numbers, times a factor."""
    for i in range(n):
        out[i] = np.float32(np.int8(x[i])) * factor
    return 0


@kernel
def _unsigned(n: Count, factor: Number, x: Octets, out: Floats) -> int:
    """Unsigned integers as real numbers, times a factor."""
    for i in range(n):
        out[i] = np.float32(x[i]) * factor
    return 0


@kernel
def _whole(n: Count, rounds: Count, bias: Floats, up: Floats, down: Floats, out: Floats) -> int:
    """A bias in units of the result, rounded to what integer products can stand for, or not."""
    for i in range(n):
        value = bias[i] * up[i]
        out[i] = (np.rint(value) if rounds else value) * down[i]
    return 0


@lowering("quantize", layout="pointwise")
def quantize(code: Code, x: Value, out: Value, *, Scale: float, is_negative_input: bool) -> Any:
    """One pass."""
    if not single(x):
        return False
    low, high = (-128.0, 127.0) if is_negative_input else (0.0, 255.0)
    code.emit(_levels, x.size, float(np.float32(Scale)), low, high, x, out)


@lowering("dequantize", layout="pointwise")
def dequantize(code: Code, x: Value, out: Value, *, Scale: float) -> Any:
    """One pass."""
    if not is_small(x):
        return False
    factor = float(np.float32(1 / np.float32(Scale)))
    code.emit(_signed if x.dtype == np.int8 else _unsigned, x.size, factor, x, out)


class Scaling:
    """The factors between numbers and the integers that stand for them.

    Args:
        scale_in: of the input.
        scales: of the weights, one for each channel of the result or one for all.
        scale_out: of the result; 1 for real numbers.
        channels: of the result.
        rounds: whether the bias is rounded to what products can stand for.
    """

    def __init__(
        self,
        scale_in: float,
        scales: Sequence[float],
        scale_out: float,
        channels: int,
        rounds: bool = True,
    ) -> None:
        each = list(scales) * (channels if len(scales) == 1 else 1)
        self.weights = tuple(map(float, each))
        self._rounds = rounds
        self._up = np.float32(scale_in) * np.array(each, np.float32)
        self._down = np.array(back_scales(scale_in, each, scale_out), np.float32)

    def arguments(self, code: Code, bias: Value | None) -> dict[int, Value | Constant]:
        """What a primitive needs: the factors of its sums, and the bias in units of the result."""
        made: dict[int, Value | Constant] = {scales_of(WEIGHTS): Constant(self._down)}
        if bias is not None:
            made[BIAS] = scaled = code.scratch(bias.size)
            factors = Constant(self._up), Constant(self._down)
            code.emit(_whole, bias.size, int(self._rounds), bias, *factors, scaled)
        return made
