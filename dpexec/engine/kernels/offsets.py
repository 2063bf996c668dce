"""Operators that change the lengths of sequences: rows and offsets are computed in machine code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.kernels.generate import compiled, single
from dpexec.engine.kernels.lowering import Code, Constant, Offsets, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.sequences import copy_offsets, in_bounds
from dpexec.engine.kernels.shapes import clear, duplicate, known
from dpexec.engine.ops.im2sequence import window_counts

__all__: list[str] = []

_ZERO = np.float32(0)
_PIECES = """\
def pieces_{kind}(
    n: Count, width: Count, lengths: Integers, starts: Integers, places: Integers, x: {kind},
    out: {kind},
):
    for sequence in range(n):
        size = (lengths[sequence + 1] - lengths[sequence]) * width
        i, o = starts[sequence] * width, places[sequence] * width
        for j in range(size):
            out[o + j] = x[i + j]
    return 0
"""
_KINDS = {"float32": "Floats", "int64": "Integers"}
_pieces = {dtype: compiled(f"pieces_{k}", _PIECES.format(kind=k)) for dtype, k in _KINDS.items()}
"""Move the rows of sequences.

Arguments: sequences, width of rows, offsets with their lengths, their first rows in the source and
in the result, rows, result.
"""


@kernel
def _evenly(sequences: Count, length: Count, out: Integers) -> int:
    """Offsets of sequences of one length. Arguments: sequences, their length, offsets."""
    for sequence in range(sequences + 1):
        out[sequence] = sequence * length
    return 0


@kernel
def _sum(n: Count, offsets: Integers, out: Integers) -> int:
    """Add offsets to sums. Arguments: how many, offsets, sums."""
    for i in range(n):
        out[i] += offsets[i]
    return 0


@kernel
def _pass(sequences: Count, offsets: Integers, starts: Integers) -> int:
    """Move first rows on by the lengths of sequences. Arguments: sequences, offsets, first rows."""
    for sequence in range(sequences):
        starts[sequence] += offsets[sequence + 1] - offsets[sequence]
    return 0


@kernel
def _scale(n: Count, offsets: Integers, width: Count, new: Count, out: Integers) -> int:
    """Offsets of the same elements in rows of another width; refuses rows that would not be full.

    Arguments: how many, offsets, width of rows, their new width, result.
    """
    for i in range(n):
        numbers = offsets[i] * width
        if numbers % new:
            return 1
        out[i] = numbers // new
    return 0


# ---- concatenation of sequences


def _laid(code: Code, parts: list[Value], lods: list[Value], total: Value) -> list[Value]:
    """The first rows of every part's sequences in the concatenation.

    Args:
        code: takes the calls.
        parts: the rows of every part.
        lods: the offsets of every part.
        total: takes the offsets of the concatenation.
    """
    n, starts = lods[0].shape[0] - 1, []
    for number, (x, lod) in enumerate(zip(parts, lods, strict=True)):
        code.emit(in_bounds, n, lod, x.shape[0])
        code.emit(_sum if number else copy_offsets, n + 1, lod, total)
    for number in range(len(parts)):
        starts.append(code.scratch(n, dtype=np.int64))
        code.emit(copy_offsets, n, starts[-2] if number else total, starts[-1])
        if number:
            code.emit(_pass, n, lods[number - 1], starts[-1])
    return starts


@lowering("sequence_concat")
def sequence_concat(
    code: Code, parts: list[Value], lods: list[Value], out: Value, made: Offsets
) -> Any:
    """One copy of every input."""
    move = _pieces.get(out.dtype.name)
    if move is None:
        return False
    n, width = made.shape[0] - 1, math.prod(out.shape[1:])
    starts = _laid(code, parts, lods, made)
    for x, lod, start in zip(parts, lods, starts, strict=True):
        code.emit(move, n, width, lod, lod, start, x, out)


@lowering("sequence_concat_grad")
def sequence_concat_grad(
    code: Code, parts: list[Value], lods: list[Value], d_out: Value, grads: list[Value | None]
) -> Any:
    """One copy for every input."""
    if not single(d_out):
        return False
    n, width = lods[0].shape[0] - 1, math.prod(d_out.shape[1:])
    total = code.scratch(n + 1, dtype=np.int64)
    starts = _laid(code, parts, lods, total)
    for lod, start, grad in zip(lods, starts, grads, strict=True):
        if grad is not None:
            code.emit(_pieces["float32"], n, width, lod, start, lod, d_out, grad)


# ---- the same rows in other sequences


@lowering("sequence_reshape")
def sequence_reshape(
    code: Code, x: Value, lod: Value, out: Value, made: Offsets, *, new_dim: int
) -> Any:
    """The same memory."""
    if not known(x):
        return False
    code.emit(_scale, lod.shape[0], lod, x.shape[1], new_dim, made)
    return duplicate(code, x, out)


@lowering("sequence_reshape_grad")
def sequence_reshape_grad(code: Code, x: Value, d_out: Value, dx: Value) -> Any:
    """The same memory."""
    return duplicate(code, d_out, dx)


# ---- the same rows with other offsets


@kernel
def _are_offsets(n: Count, given: Integers, rows: Count) -> int:
    """Refuse numbers that are not offsets. Arguments: how many, numbers, rows of the tensor."""
    if given[0] != 0 or given[n - 1] != rows:
        return 1
    for i in range(1, n):
        if given[i] < given[i - 1]:
            return 1
    return 0


@lowering("lod_reset")
def lod_reset(
    code: Code, x: Value, x_lod: Value | None, y: Value | None, y_lod: Value | None, out: Value,
    made: Offsets, *, target_lod: Sequence[int],
) -> Any:  # fmt: skip
    """The same memory, if there is one level of sequences."""
    given = y_lod or y or Constant(np.array(target_lod, np.int64))
    if isinstance(given, Value) and given.dtype != "int64":
        return False
    if x.buffer is None and not known(x):
        return False
    n = made.shape[0]
    code.emit(_are_offsets, n, given, x.shape[0])
    code.emit(copy_offsets, n, given, made)
    return duplicate(code, x, out)


@lowering("lod_reset_grad")
def lod_reset_grad(code: Code, x: Value, d_out: Value, dx: Value) -> Any:
    """The same memory."""
    return duplicate(code, d_out, dx)


@lowering("kept_lod")
def kept_lod(code: Code, lod: Value | None, before: Value, after: Value, made: Offsets) -> Any:
    """The same memory. If there are none, shapes say so, and it runs on NumPy."""
    if lod is None:
        return False
    if not code.alias(made, lod):
        code.emit(copy_offsets, lod.shape[0], lod, made)


# ---- windows over images


@kernel
def _windows(
    images: Count, channels: Count, height: Count, width: Count, kh: Count, kw: Count, oh: Count,
    ow: Count, sy: Count, sx: Count, up: Count, left: Count, x: Floats, rows: Floats, adds: Count,
) -> int:  # fmt: skip
    """Copy windows over images to rows, or add rows to the windows of images.

    Arguments: number of images, channels, height and width of images, height and width of windows,
    number of windows down and along, strides, padding above and to the left; images; rows; whether
    to add rows to the images.
    """
    at = 0
    for image in range(images):
        for window in range(oh * ow):
            top, first = window // ow * sy - up, window % ow * sx - left
            for channel in range(channels):
                for i in range(kh):
                    y, plane = top + i, image * channels + channel
                    for j in range(kw):
                        z = first + j
                        inside = y >= 0 and y < height and z >= 0 and z < width
                        place = (plane * height + y) * width + z
                        if adds and inside:
                            x[place] += rows[at]
                        elif not adds:
                            rows[at] = x[place] if inside else _ZERO
                        at += 1
    return 0


def _window_sizes(
    x: Value, kernels: Sequence[int], strides: Sequence[int], paddings: Sequence[int]
) -> tuple[list[Any], int]:
    """The arguments of ``_windows``, and the number of windows of an image."""
    down, across = window_counts(x.shape[2:], kernels, paddings, strides)
    return [*x.shape, *kernels, down, across, *strides, *paddings[:2]], down * across


@lowering("im2sequence")
def im2sequence(
    code: Code, x: Value, sizes: Value | None, out: Value, made: Offsets,
    *, kernels: Sequence[int], strides: Sequence[int], paddings: Sequence[int],
) -> Any:  # fmt: skip
    """One pass, if all images have the size of the tensor."""
    if sizes is not None or not single(x):
        return False
    numbers, windows = _window_sizes(x, kernels, strides, paddings)
    code.emit(_evenly, x.shape[0], windows, made)
    code.emit(_windows, *numbers, x, out, False)


@lowering("im2sequence_grad")
def im2sequence_grad(
    code: Code, x: Value, d_out: Value, dx: Value,
    *, kernels: Sequence[int], strides: Sequence[int], paddings: Sequence[int],
) -> Any:  # fmt: skip
    """Zeros, and one pass."""
    if not single(d_out):
        return False
    clear(code, dx)
    code.emit(_windows, *_window_sizes(x, kernels, strides, paddings)[0], dx, d_out, True)
