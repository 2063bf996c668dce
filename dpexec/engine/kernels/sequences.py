"""Pooling of sequences to one row each, and its gradient, in one call for all sequences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.kernels.calls import run_call, with_arguments
from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Code, Offsets, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, Kernel, Number, Words, kernel
from dpexec.engine.kernels.math import exp_bounded, largest
from dpexec.engine.kernels.softmax import add_up, dot
from dpexec.engine.ops import _sequences as on_arrays

__all__ = ["copy_offsets", "in_bounds", "maxima", "sums"]

_KINDS = "SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST"
_SUM, _AVERAGE, _SQRT, _MAX, _FIRST, _LAST = range(6)
_ZERO, _ONE = np.float32(0), np.float32(1)

_Array = np.ndarray[Any, Any]


@kernel(apart=True)
def _sums(sequences: Count, width: Count, offsets: Integers, x: Floats, out: Floats) -> None:
    """The sum of the rows of every sequence.

    Arguments: sequences, width of rows, offsets, rows, sums.
    """
    for sequence in range(sequences):
        o = sequence * width
        for j in range(width):
            out[o + j] = 0
        for row in range(offsets[sequence], offsets[sequence + 1]):
            i = row * width
            for j in range(width):
                out[o + j] += x[i + j]


@kernel(apart=True)
def _maxima(
    sequences: Count, width: Count, offsets: Integers, x: Floats, out: Floats, rows: Words
) -> None:
    """The maxima of every sequence, and the rows that have them.

    Arguments: sequences, width of rows, offsets, rows, maxima, their rows.
    """
    for sequence in range(sequences):
        o, first = sequence * width, offsets[sequence]
        empty = first == offsets[sequence + 1]
        for j in range(width):
            out[o + j] = 0 if empty else x[first * width + j]
            rows[o + j] = -1 if empty else first
        for row in range(first + 1, offsets[sequence + 1]):
            i = row * width
            for j in range(width):
                new, old = x[i + j], out[o + j]
                greater = (new > old) | ((new != new) & (old == old))  # or the first NaN
                out[o + j] = new if greater else old
                rows[o + j] = np.int32(row) if greater else rows[o + j]


@kernel
def in_bounds(sequences: Count, offsets: Integers, rows: Count) -> int:
    """Refuse offsets that go beyond the rows. Arguments: sequences, offsets, rows."""
    return 1 if offsets[sequences] > rows else 0


@kernel
def copy_offsets(n: Count, offsets: Integers, out: Integers) -> int:
    """Copy offsets. Arguments: how many, offsets, result."""
    for i in range(n):
        out[i] = offsets[i]
    return 0


@inline
def _share(kind: int, length: int) -> Any:
    """The factor of the sum of a sequence."""
    if kind == _AVERAGE:
        return np.float32(1.0 / length)
    return np.float32(1.0 / math.sqrt(length)) if kind == _SQRT else _ONE


@kernel
def _ends(
    sequences: Count, width: Count, offsets: Integers, x: Floats, out: Floats, last: Count,
) -> int:  # fmt: skip
    """The first or the last row of every sequence that has some.

    Arguments: sequences, width of rows, offsets, rows, results, whether they are the last ones.
    """
    for sequence in range(sequences):
        first, end = offsets[sequence], offsets[sequence + 1]
        row = end - 1 if last else first
        if first < end:
            for j in range(width):
                out[sequence * width + j] = x[row * width + j]
    return 0


@kernel
def _complete(
    sequences: Count, width: Count, offsets: Integers, out: Floats, kind: Count, filled: Number,
) -> int:  # fmt: skip
    """Turn sums into results, and fill in a number for empty sequences.

    Arguments: sequences, width of rows, offsets, results, kind of the pool, the number.
    """
    for sequence in range(sequences):
        length, o = offsets[sequence + 1] - offsets[sequence], sequence * width
        if length == 0:
            for j in range(width):
                out[o + j] = filled
        elif kind in (_AVERAGE, _SQRT):
            share = _share(kind, length)
            for j in range(width):
                out[o + j] *= share
    return 0


@kernel
def _shares(
    sequences: Count, width: Count, offsets: Integers, d_out: Floats, dx: Floats, kind: Count,
) -> int:  # fmt: skip
    """The gradient of rows for pools that add up.

    Arguments: sequences, width of rows, offsets, gradient of results, of rows, kind of the results.
    """
    for sequence in range(sequences):
        first, end, i = offsets[sequence], offsets[sequence + 1], sequence * width
        share = _share(kind, end - first) if first < end else _ONE
        for row in range(first, end):
            for j in range(width):
                dx[row * width + j] = d_out[i + j] * share
    return 0


@kernel
def _choices(
    sequences: Count, width: Count, offsets: Integers, d_out: Floats, dx: Floats, kind: Count,
    rows: Words,
) -> int:  # fmt: skip
    """The gradient of rows for pools that choose rows.

    Arguments: sequences, width of rows, offsets, gradient of results, of rows, kind of the pool,
    rows of the maxima.
    """
    for sequence in range(sequences):
        first, end, i = offsets[sequence], offsets[sequence + 1], sequence * width
        for j in range(first * width, end * width):
            dx[j] = _ZERO
        row = first if kind == _FIRST else end - 1
        for j in range(width if first < end else 0):
            chosen = rows[i + j] if kind == _MAX else row
            dx[chosen * width + j] = d_out[i + j]
    return 0


@lowering("sequence_pool")
def sequence_pool(
    code: Code, x: Value, lod: Value, out: Value, index: Value | None,
    coarser: Offsets | None, *, pooltype: str, pad_value: float,
) -> Any:  # fmt: skip
    """One pass over the rows, one over the results."""
    if coarser is not None or not single(x):
        return False
    sizes, kind = (lod.shape[0] - 1, math.prod(x.shape[1:])), _KINDS.index(pooltype)
    code.emit(in_bounds, sizes[0], lod, x.shape[0])
    if kind == _MAX:
        made = index or code.scratch(*sizes, dtype=np.int32)
        code.emit(_maxima, *sizes, lod, x, out, made)
    elif kind in (_FIRST, _LAST):
        code.emit(_ends, *sizes, lod, x, out, int(kind == _LAST))
    else:
        code.emit(_sums, *sizes, lod, x, out)
    code.emit(_complete, *sizes, lod, out, kind, float(pad_value))


@lowering("sequence_pool_grad")
def sequence_pool_grad(
    code: Code, x: Value, lod: Value, index: Value | None, d_out: Value, dx: Value,
    *, pooltype: str,
) -> Any:  # fmt: skip
    """One pass over the rows."""
    if not single(x, d_out):
        return False
    kind = _KINDS.index(pooltype)
    places = lod.shape[0] - 1, math.prod(x.shape[1:]), lod, d_out, dx, kind
    if kind in (_MAX, _FIRST, _LAST):
        code.emit(_choices, *places, 0 if index is None else index)
    else:
        code.emit(_shares, *places)


@kernel
def _softmax(sequences: Count, offsets: Integers, x: Floats, out: Floats) -> int:
    """The softmax of every sequence. Arguments: sequences, offsets, numbers, result."""
    for sequence in range(sequences):
        first, n = offsets[sequence], offsets[sequence + 1] - offsets[sequence]
        if n:
            top = largest(x, first, n)
            for j in range(first, first + n):
                out[j] = exp_bounded(x[j] - top)
            total = add_up(out, first, n)
            for j in range(first, first + n):
                out[j] /= total
    return 0


@kernel
def _softmax_grad(sequences: Count, offsets: Integers, y: Floats, dy: Floats, dx: Floats) -> int:
    """The gradient of the softmax. Arguments: sequences, offsets, results, their gradient, dx."""
    for sequence in range(sequences):
        first, end = offsets[sequence], offsets[sequence + 1]
        total = dot(y, dy, first, end - first)
        for j in range(first, end):
            dx[j] = y[j] * (dy[j] - total)
    return 0


@lowering("sequence_softmax")
def sequence_softmax(code: Code, x: Value, lod: Value, out: Value) -> Any:
    """Sequence after sequence."""
    if not single(x):
        return False
    code.emit(in_bounds, lod.shape[0] - 1, lod, x.shape[0])
    code.emit(_softmax, lod.shape[0] - 1, lod, x, out)


@lowering("sequence_softmax_grad")
def sequence_softmax_grad(
    code: Code, x: Value, lod: Value, out: Value, d_out: Value, dx: Value
) -> Any:
    """Sequence after sequence."""
    if not single(x, d_out):
        return False
    code.emit(_softmax_grad, lod.shape[0] - 1, lod, out, d_out, dx)


@kernel
def _repeat(sequences: Count, width: Count, offsets: Integers, x: Floats, out: Floats) -> int:
    """Repeat a row for every row of a sequence.

    Arguments: sequences, width of rows, offsets, one row for every sequence, results.
    """
    for sequence in range(sequences):
        first = sequence * width
        for row in range(offsets[sequence], offsets[sequence + 1]):
            for j in range(width):
                out[row * width + j] = x[first + j]
    return 0


def _repeats(x: Value, lod: Value, ref_level: int) -> bool:
    """Whether there is a row for every sequence of the finest level."""
    return ref_level == -1 and single(x) and x.shape[0] == lod.shape[0] - 1


@lowering("sequence_expand")
def sequence_expand(
    code: Code, x: Value, x_lod: Value | None, y: Value, lod: Value, out: Value, out_lod: None,
    *, ref_level: int,
) -> Any:  # fmt: skip
    """One pass, if X has no sequences."""
    if x_lod is not None or not _repeats(x, lod, ref_level):
        return False
    code.emit(in_bounds, x.shape[0], lod, out.shape[0])
    code.emit(_repeat, x.shape[0], math.prod(x.shape[1:]), lod, x, out)


@lowering("sequence_expand_grad")
def sequence_expand_grad(
    code: Code, x: Value, x_lod: Value | None, y: Value, lod: Value, d_out: Value, dx: Value,
    *, ref_level: int,
) -> Any:  # fmt: skip
    """One pass, if X has no sequences."""
    if x_lod is not None or not _repeats(x, lod, ref_level) or not single(d_out):
        return False
    code.emit(_sums, x.shape[0], math.prod(x.shape[1:]), lod, d_out, dx)


@lowering("sequence_expand_as")
def sequence_expand_as(
    code: Code, x: Value, y: Value, lod: Value, out: Value, made: Offsets
) -> Any:
    """One pass."""
    if not _repeats(x, lod, -1):
        return False
    code.emit(in_bounds, x.shape[0], lod, out.shape[0])
    code.emit(copy_offsets, lod.shape[0], lod, made)
    code.emit(_repeat, x.shape[0], math.prod(x.shape[1:]), lod, x, out)


@lowering("sequence_expand_as_grad")
def sequence_expand_as_grad(
    code: Code, x: Value, y: Value, lod: Value, d_out: Value, dx: Value
) -> Any:
    """One pass."""
    if not _repeats(x, lod, -1) or not single(d_out):
        return False
    code.emit(_sums, x.shape[0], math.prod(x.shape[1:]), lod, d_out, dx)


# ---- called from Python


def _run(code: Kernel, x: _Array, lod: Lod, *made: _Array) -> None:
    offsets = np.ascontiguousarray(lod.offsets)
    sizes = len(offsets) - 1, math.prod(x.shape[1:])
    run_call((code, (*sizes, *map(address, (offsets, x, *made)))))


def _known(x: _Array) -> bool:
    """Whether there are kernels for these rows."""
    return x.dtype == np.float32 and x.flags.c_contiguous


def sums(xp: Any, x: _Array, lod: Lod) -> _Array:
    """:func:`dpexec.engine.ops._sequences.sequence_sums` in machine code."""
    if not _known(x):
        made: _Array = on_arrays.sequence_sums(xp, x, lod)
        return made
    out = np.empty((len(lod.offsets) - 1, *x.shape[1:]), x.dtype)
    _run(_sums, x, lod, out)
    return out


def maxima(xp: Any, x: _Array, lod: Lod) -> tuple[_Array, _Array]:
    """:func:`dpexec.engine.ops._sequences.greatest_rows` in machine code."""
    if not _known(x):
        made: tuple[_Array, _Array] = on_arrays.greatest_rows(xp, x, lod)
        return made
    out = np.empty((len(lod.offsets) - 1, *x.shape[1:]), x.dtype)
    rows = np.empty(out.shape, np.int32)
    _run(_maxima, x, lod, out, rows)
    return out, rows


implementation("sequence_pool", backend="host", per_operator=True)(
    with_arguments(sums=sums, maxima=maxima)
)
implementation(
    "sequence_expand_grad", "sequence_expand_as_grad", "fusion_seqpool_concat",
    "fusion_seqpool_cvm_concat", backend="host", per_operator=True,
)(with_arguments(sums=sums))  # fmt: skip
