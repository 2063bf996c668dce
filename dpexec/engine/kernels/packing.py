"""Operands in the layouts that the library wants; weights that nobody changes get there once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.ir.sizes import Rows, at
from dpexec.engine.kernels import onednn, onednn_calls
from dpexec.engine.kernels.lowering import Code, Constant, Value
from dpexec.engine.kernels.machine import Count, Floats, Octets, kernel
from dpexec.engine.kernels.onednn import DST, SRC, Layout, Primitive

__all__ = [
    "GAP",
    "apart",
    "array_apart",
    "collide",
    "half",
    "is_packed",
    "length",
    "packed",
    "repays",
    "spread",
]

GAP = 16
"""Unused numbers behind each row of a matrix that was spread: one line of a cache."""
_APART = 512
"""Rows whose length is a multiple of this lie in the same few lines of each cache. Without AVX-512
the library reads blocks of 16 columns where they lie, and these push each other out. 256x256 .
256x1024 takes 1.8 to 4.7 ms, depending on the pages of memory, and 1.5 spread; its gradient
(256x256).T . 256x1024 3.3 and 1.6, (768x128).T . 768x3072 21 and 7.4 (copies: 0.04 to 0.3)."""
_IN_CACHE = 2**20
"""Numbers of a matrix whose copy takes 0.15 ns for each; it takes 1 ns if they come from memory."""
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


def collide(width: Any) -> bool:
    """Whether rows of a matrix of so many numbers push each other out of the caches in a product.

    Args:
        width: a number of columns; open ones are not known to be such.
    """
    known = isinstance(width, int) and width % _APART == 0
    return known and onednn.available() and not onednn.copies_operands()


def repays(rows: Any, width: int) -> int:
    """Rows or columns of the other operand from which on a product repays :func:`spread`.

    Args:
        rows: rows of the matrix, which may be open.
        width: numbers of a row.
    """
    return 8 if isinstance(rows, int) and rows * width <= _IN_CACHE else 32


def spread(code: Code, matrix: Value, rows: Any, width: int) -> Value | Constant:
    """A matrix with a gap behind each row, at every run, or once if nobody changes it.

    Args:
        code: takes the calls.
        matrix: ``(rows, width)``.
        rows: how many there are, which may be open.
        width: numbers of a row.
    """
    if is_packed(code, matrix):
        plain, wanted = (onednn.described([rows, width], [0, 1], gap=gap) for gap in (0, GAP))
        turning = onednn.reorder(plain, wanted)
        return packed(code, matrix, turning, turning.layout(DST))
    target = code.scratch(rows, width + GAP)
    code.emit(_spread, rows, width, matrix, target)
    return target


def apart(code: Code, matrix: Value, rows: int, width: int) -> Value | Constant:
    """A matrix whose rows do not push each other out: itself, or with a gap behind each row.

    Args:
        code: takes the calls.
        matrix: ``(rows, width)``.
        rows: how many there are.
        width: numbers of a row.
    """
    return spread(code, matrix, rows, width) if collide(width) else matrix


def length(width: int) -> int:
    """How many numbers a row of so many takes in :func:`apart`."""
    return width + (GAP if collide(width) else 0)


def array_apart(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same for an array of NumPy: float32, row by row."""
    rows, width = matrix.shape
    made = np.empty((rows, length(width)), np.float32)
    made[:, :width] = matrix
    return made


def half(code: Code, value: Value) -> Value:
    """A value rounded to bfloat16, made when the first product reads it."""
    if value not in code.rounded:
        half = code.scratch(*value.shape, dtype=np.uint16)
        onednn_calls.emit(
            code,
            {onednn.SRC: value, onednn.DST: half},
            lambda count: onednn.rounding(at(value.size, count)),
            Rows.of(value.size),
        )
        code.rounded[value] = half
    return code.rounded[value]


@kernel
def _spread(rows: Count, width: Count, x: Floats, out: Floats) -> int:
    for i in range(rows):
        for j in range(width):
            out[i * (width + GAP) + j] = x[i * width + j]
    return 0


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
