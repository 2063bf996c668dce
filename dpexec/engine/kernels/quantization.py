"""Fake quantization: numbers to levels and back, in one pass each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.kernels.elementwise import COPY
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Constant, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Number, kernel
from dpexec.engine.kernels.shapes import duplicate
from dpexec.engine.ops._quantization import TINY, largest_level

_ZERO, _ONE, _TINY = np.float32(0), np.float32(1), np.float32(TINY)
_ALONE = Constant(np.ones(1, np.float32))


@kernel
def _abs_max(rows: Count, n: Count, x: Floats, out: Floats) -> int:
    """The largest magnitude of every row."""
    for i in range(rows):
        largest, strange = _ZERO, 0
        for j in range(i * n, (i + 1) * n):
            value = abs(x[j])
            largest = value if value > largest else largest
            strange |= value != value
        out[i] = np.float32(np.nan) if strange else largest
    return 0


@kernel
def _moving(
    here: Floats, accum: Floats, state: Floats, rate: Number, out_scale: Floats, out_state: Floats,
    out_accum: Floats,
) -> int:  # fmt: skip
    """Update the moving average of scales."""
    weight = rate * state[0] + _ONE
    total = rate * accum[0] + here[0]
    out_scale[0], out_state[0], out_accum[0] = total / weight, weight, total
    return 0


@kernel
def _levels(
    rows: Count, n: Count, x: Floats, scale: Floats, out: Floats, largest: Number, back: Count,
) -> int:  # fmt: skip
    """The levels of rows, each with its own scale; converted back to numbers if ``back``."""
    for i in range(rows):
        bound = scale[i]
        factor = largest * (_ONE / (bound if bound > _TINY else bound + _TINY))
        unit = bound / largest if back else _ONE
        for j in range(i * n, (i + 1) * n):
            value = x[j]
            value = bound if value > bound else value
            value = -bound if value < -bound else value
            out[j] = np.rint(value * factor) * unit
    return 0


@kernel
def _numbers(
    outer: Count, channels: Count, inner: Count, x: Floats, scale: Floats, other: Floats,
    out: Floats, largest: Number,
) -> int:  # fmt: skip
    """The numbers that levels stand for, with a scale for each channel and one for all."""
    for i in range(outer):
        for c in range(channels):
            factor = scale[c] * other[0]
            start = (i * channels + c) * inner
            for j in range(start, start + inner):
                out[j] = x[j] * factor / largest
    return 0


@lowering("fake_quantize_abs_max", layout="own")
def fake_quantize_abs_max(
    code: Code, x: Value, out: Value, scale: Value, *, bit_length: int
) -> Any:
    """A pass for the scale, and one for the levels."""
    if not single(x):
        return False
    out.channels_last = x.channels_last
    code.emit(_abs_max, 1, x.size, x, scale)
    code.emit(_levels, 1, x.size, x, scale, out, float(largest_level(bit_length)), 0)


@lowering("fake_channel_wise_quantize_abs_max")
def fake_channel_wise_quantize_abs_max(
    code: Code, x: Value, out: Value, scale: Value, *, bit_length: int
) -> Any:
    """A pass for the scales, and one for the levels."""
    if not single(x):
        return False
    rows, n = x.shape[0], math.prod(x.shape[1:])
    code.emit(_abs_max, rows, n, x, scale)
    code.emit(_levels, rows, n, x, scale, out, float(largest_level(bit_length)), 0)


def _go_on(
    code: Code, x: Value, accum: Value, state: Value, outs: tuple[Value, ...], rate: float
) -> None:
    """Update the moving average of scales with that of ``x``; ``outs``: scale, state and sum."""
    here = code.scratch(1)
    code.emit(_abs_max, 1, x.size, x, here)
    code.emit(_moving, here, accum, state, float(rate), *outs)


def _with_scale(
    code: Code, x: Value, scale: Value, out: Value, out_scale: Value | None, bits: int, back: bool
) -> None:
    """The levels by a scale that stays as it is."""
    out.channels_last = x.channels_last
    code.emit(_levels, 1, x.size, x, scale, out, float(largest_level(bits)), int(back))
    if out_scale is not None:
        COPY.emit(code, out_scale, scale)


@lowering("fake_quantize_range_abs_max", layout="own")
def fake_quantize_range_abs_max(
    code: Code, x: Value, scale: Value, step: Value | None, window: Value | None, out: Value,
    out_scale: Value | None, *, bit_length: int, is_test: bool,
) -> Any:  # fmt: skip
    """One pass, when scales do not change any more."""
    if not single(x, scale) or not is_test or window is not None:
        return False
    _with_scale(code, x, scale, out, out_scale, bit_length, back=False)


def _with_mean(back: bool) -> Any:
    def emit(
        code: Code, x: Value, scale: Value, accum: Value | None, state: Value | None, out: Value,
        out_scale: Value | None, out_state: Value | None, out_accum: Value | None, *,
        bit_length: int, moving_rate: float, is_test: bool,
    ) -> Any:  # fmt: skip
        """A pass for the scale while it moves, and one for the levels."""
        outs = (out_scale, out_state, out_accum)
        if not single(x, scale, accum, state):
            return False
        if is_test:
            return _with_scale(code, x, scale, out, out_scale, bit_length, back)
        if accum is None or state is None:
            return False
        made = tuple(value or code.scratch(1) for value in outs)
        out.channels_last = x.channels_last
        _go_on(code, x, accum, state, made, moving_rate)
        largest = float(largest_level(bit_length))
        code.emit(_levels, 1, x.size, x, made[0], out, largest, int(back))

    return emit


lowering("fake_quantize_moving_average_abs_max", layout="own")(_with_mean(False))
lowering("fake_quantize_dequantize_moving_average_abs_max", layout="own")(_with_mean(True))


@lowering("moving_average_abs_max_scale", layout="own")
def moving_average_abs_max_scale(
    code: Code, x: Value, accum: Value | None, state: Value | None, out: Value,
    out_scale: Value | None, out_state: Value | None, out_accum: Value | None, *,
    moving_rate: float, is_test: bool,
) -> Any:  # fmt: skip
    """A pass for the scale; the same memory."""
    if not single(x, accum, state) or is_test or accum is None or state is None:
        return False
    made = tuple(value or code.scratch(1) for value in (out_scale, out_state, out_accum))
    _go_on(code, x, accum, state, made, moving_rate)
    out.channels_last = x.channels_last
    return duplicate(code, x, out)


@lowering("fake_dequantize_max_abs", layout="own")
def fake_dequantize_max_abs(
    code: Code, x: Value, scale: Value, out: Value, *, max_range: float
) -> Any:
    """One pass."""
    if not single(x, scale):
        return False
    out.channels_last = x.channels_last
    code.emit(_numbers, 1, 1, x.size, x, scale, _ALONE, out, float(max_range))


@lowering("fake_channel_wise_dequantize_max_abs")
def fake_channel_wise_dequantize_max_abs(
    code: Code, x: Value, scales: list[Value], out: Value, *, quant_bits: list[int]
) -> Any:
    """One pass."""
    if not single(x, *scales):
        return False
    axis = len(scales) - 1
    sizes = (x.shape[0] if axis else 1, x.shape[axis], math.prod(x.shape[axis + 1 :]))
    largest = math.prod(largest_level(bits) for bits in quant_bits[: axis + 1])
    code.emit(_numbers, *sizes, x, *scales, *([] if axis else [_ALONE]), out, float(largest))
