"""Weights in the layouts that the library wants: brought there once if nobody changes them."""

from __future__ import annotations

import math

import numpy as np

from dpexec.engine.kernels import onednn_calls
from dpexec.engine.kernels.lowering import Code, Constant, Value
from dpexec.engine.kernels.machine import Count, Floats, Octets, kernel
from dpexec.engine.kernels.onednn import DST, SRC, Layout, Primitive

__all__ = ["is_packed", "packed"]

_LEAST, _MOST = np.float32(-128), np.float32(127)


def is_packed(code: Code, weight: Value) -> bool:
    """Whether nobody changes the elements of some weights: those of a loaded model."""
    known = code.packed is not None and weight.name in code.packed.names
    return known and weight.buffer is None


def packed(
    code: Code,
    weight: Value,
    turning: Primitive,
    layout: Layout,
    scales: tuple[float, ...] = (),
    axis: int = 0,
) -> Value | Constant:
    """Weights in another layout, at every run or once.

    Args:
        code: takes the calls.
        weight: as the program has them.
        turning: the reorder, of int8 if there are scales.
        layout: the layout that it brings them to.
        scales: the factors by which weights become int8, one for each channel; empty: they stay.
        axis: the axis of the channels.
    """
    target: Value | Constant
    done = None
    if code.packed is not None and is_packed(code, weight):
        done, target = code.packed.of(weight.name, layout, scales)
    else:
        target = code.scratch(layout.nbytes, dtype=np.uint8)
    source = weight
    if scales:
        source = code.scratch(*weight.shape, dtype=np.int8)
        outer, inner = math.prod(weight.shape[:axis]), math.prod(weight.shape[axis + 1 :])
        factors = Constant(np.array(scales, np.float32))
        calls = outer, len(scales), inner, factors, weight, source
        if done is None:
            code.emit(_to_int8, *calls)
        else:  # the reorder behind it notes that both were done
            code.emit(onednn_calls.unless, done, weight, _to_int8.address, *calls)
    once = () if done is None else (done, weight)
    onednn_calls.emit(code, {SRC: source, DST: target}, lambda count: turning, once=once)
    return target


@kernel
def _to_int8(
    outer: Count, channels: Count, inner: Count, scale: Floats, x: Floats, out: Octets
) -> int:
    """The nearest whole numbers from -128 to 127 of weights times the scales of their channels."""
    for i in range(outer):
        for channel in range(channels):
            factor, start = scale[channel], (i * channels + channel) * inner
            for j in range(start, start + inner):
                value = np.rint(x[j] * factor)
                value = _MOST if value > _MOST else value
                value = _LEAST if value < _LEAST else value
                out[j] = np.uint8(np.int32(value))
    return 0
