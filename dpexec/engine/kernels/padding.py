"""Padding, unpadding and reversing of sequences, in one call for all sequences."""

from __future__ import annotations

import math
from typing import Any

from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Offsets, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.sequences import in_bounds
from dpexec.engine.kernels.shapes import clear

__all__: list[str] = []


@kernel
def _pad(
    n: Count, steps: Count, width: Count, offsets: Integers, x: Floats, out: Floats, many: Count,
    padding: Floats,
) -> int:  # fmt: skip
    """Pad sequences to the same number of rows; refuses longer ones.

    Arguments: sequences, rows that each gets, width of rows, offsets, rows, result, number of
    padding values (1 or the width of rows), the values.
    """
    for sequence in range(n):
        first, size = offsets[sequence] * width, (offsets[sequence + 1] - offsets[sequence]) * width
        o = sequence * steps * width
        if size > steps * width:
            return 1
        for j in range(size):
            out[o + j] = x[first + j]
        for j in range(size, steps * width):
            out[o + j] = padding[j % many]
    return 0


@kernel
def _unpad(n: Count, steps: Count, width: Count, offsets: Integers, x: Floats, out: Floats) -> int:
    """Remove the padding of sequences; refuses lengths greater than the padded ones.

    Arguments: sequences, padded rows of each, width of rows, offsets, rows, result.
    """
    for sequence in range(n):
        first, size = offsets[sequence] * width, (offsets[sequence + 1] - offsets[sequence]) * width
        i = sequence * steps * width
        if size > steps * width:
            return 1
        for j in range(size):
            out[first + j] = x[i + j]
    return 0


@kernel
def _lengths(sequences: Count, offsets: Integers, out: Integers) -> int:
    """The lengths of sequences. Arguments: sequences, offsets, result."""
    for sequence in range(sequences):
        out[sequence] = offsets[sequence + 1] - offsets[sequence]
    return 0


@kernel
def _reverse(sequences: Count, width: Count, offsets: Integers, x: Floats, out: Floats) -> int:
    """Reverse sequences. Arguments: sequences, width of rows, offsets, rows, result."""
    for sequence in range(sequences):
        first, end = offsets[sequence], offsets[sequence + 1]
        for row in range(first, end):
            i, o = row * width, (first + end - 1 - row) * width
            for j in range(width):
                out[o + j] = x[i + j]
    return 0


def _sizes(padded: Value) -> tuple[int, int, int]:
    """Sequences, rows of each, and numbers of a row."""
    sequences, rows, *row = padded.shape
    return sequences, rows, math.prod(row)


@lowering("sequence_pad")
def sequence_pad(
    code: Code, x: Value, lod: Value, padding: Value, out: Value, length: Value | None
) -> Any:
    """One pass, if the padded length is known."""
    if not single(x, padding):
        return False
    sizes = _sizes(out)
    code.emit(in_bounds, sizes[0], lod, x.shape[0])
    code.emit(_pad, *sizes, lod, x, out, padding.size, padding)
    if length is not None:
        code.emit(_lengths, sizes[0], lod, length)


@lowering("sequence_pad_grad")
def sequence_pad_grad(code: Code, x: Value, lod: Value, d_out: Value, dx: Value) -> Any:
    """One pass."""
    if not single(x, d_out):
        return False
    code.emit(_unpad, *_sizes(d_out), lod, d_out, dx)


@lowering("sequence_unpad")
def sequence_unpad(
    code: Code, rows: Value | None, lod: Value | None, x: Value, length: Value, out: Value,
    made: Offsets | None,
) -> Any:  # fmt: skip
    """One pass, if the number of rows is known, from fed lengths or from other sequences."""
    if lod is None or made is not None or not single(x):
        return False
    code.emit(in_bounds, x.shape[0], lod, out.shape[0])
    code.emit(_unpad, *_sizes(x), lod, x, out)


@lowering("sequence_unpad_grad")
def sequence_unpad_grad(code: Code, x: Value, d_out: Value, lod: Value, dx: Value) -> Any:
    """One pass."""
    if not single(x, d_out):
        return False
    zero = code.scratch(1)
    clear(code, zero, 0.0)
    code.emit(_pad, *_sizes(x), lod, d_out, dx, 1, zero)


@lowering("sequence_reverse")
def sequence_reverse(code: Code, x: Value, lod: Value, out: Value) -> Any:
    """One pass."""
    if not single(x):
        return False
    sequences = lod.shape[0] - 1
    code.emit(in_bounds, sequences, lod, x.shape[0])
    code.emit(_reverse, sequences, math.prod(x.shape[1:]), lod, x, out)
