"""Context windows of the rows of sequences, and their gradient, in one call for all sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.kernels.calls import run_call, with_arguments
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, Kernel, kernel
from dpexec.engine.kernels.products import matrix_product
from dpexec.engine.kernels.sequences import in_bounds
from dpexec.engine.ops import _contexts as on_arrays
from dpexec.engine.ops._contexts import Contexts

__all__ = ["CONTEXTS", "contexts_of"]

_ZERO = np.float32(0)
_Array = np.ndarray[Any, Any]


@kernel(apart=True)
def _contexts(
    sequences: Count, width: Count, start: Count, length: Count, offsets: Integers, x: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """For every row, the rows around it.

    Arguments: sequences, width of rows, first row of a context relative to its own row, rows of a
    context, offsets, rows, contexts.
    """
    for sequence in range(sequences):
        first, end = offsets[sequence], offsets[sequence + 1]
        for row in range(first, end):
            for position in range(length):
                there = row + start + position
                o, i = (row * length + position) * width, there * width
                if first <= there and there < end:
                    for j in range(width):
                        out[o + j] = x[i + j]
                else:
                    for j in range(width):
                        out[o + j] = _ZERO


@kernel(apart=True)
def _contexts_grad(
    sequences: Count, width: Count, start: Count, length: Count, offsets: Integers,
    d_contexts: Floats, d_x: Floats,
) -> None:  # fmt: skip
    """The gradient of rows: the sum over the contexts that they are in.

    Arguments: sequences, width of rows, first row of a context relative to its own row, rows of a
    context, offsets, gradient of the contexts, gradient of the rows.
    """
    for sequence in range(sequences):
        first, end = offsets[sequence], offsets[sequence + 1]
        for row in range(first, end):
            o = row * width
            for j in range(width):
                d_x[o + j] = _ZERO
            for position in range(length):
                reader = row - start - position
                if first <= reader and reader < end:
                    i = (reader * length + position) * width
                    for j in range(width):
                        d_x[o + j] += d_contexts[i + j]


def _known(array: _Array) -> bool:
    return array.dtype == np.float32 and array.flags.c_contiguous


def _run(code: Kernel, lod: Lod, start: int, contexts: _Array, given: _Array, made: _Array) -> None:
    _, length, width = contexts.shape
    offsets = np.ascontiguousarray(lod.offsets)
    sizes = len(offsets) - 1, width, start, length
    run_call((code, (*sizes, *map(address, (offsets, given, made)))))


def _of_rows(xp: Any, x: _Array, lod: Lod, start: int, length: int) -> _Array:
    if not _known(x):
        found: _Array = on_arrays.contexts(xp, x, lod, start, length)
        return found
    made = np.empty((len(x), length, x.shape[1]), np.float32)
    _run(_contexts, lod, start, made, x, made)
    return made


def _gradient(xp: Any, d_contexts: _Array, lod: Lod, start: int) -> _Array:
    if not _known(d_contexts):
        found: _Array = on_arrays.contexts_grad(xp, d_contexts, lod, start)
        return found
    rows, _, width = d_contexts.shape
    made = np.empty((rows, width), np.float32)
    _run(_contexts_grad, lod, start, d_contexts, d_contexts, made)
    return made


def contexts_of(
    code: Code, x: Value, lod: Value, start: int, length: int, out: Value | None = None
) -> Value:
    """The context of every row, as one row.

    Args:
        code: takes the calls.
        x: rows of sequences.
        lod: their offsets.
        start: the first row of a context, counted from its own row.
        length: rows of a context.
        out: takes the contexts; None: new memory, or that of x if contexts equal x.
    """
    rows, width = x.shape
    if out is None and (start, length) == (0, 1):
        return x
    found = out or code.scratch(rows, length * width)
    code.emit(in_bounds, lod.shape[0] - 1, lod, rows)
    code.emit(_contexts, lod.shape[0] - 1, width, start, length, lod, x, found)
    return found


@lowering("sequence_conv")
def sequence_conv(
    code: Code, x: Value, lod: Value, padding: Value | None, weight: Value, out: Value,
    *, contextLength: int, contextStart: int, paddingTrainable: bool,
) -> Any:  # fmt: skip
    """Contexts, and one product."""
    if paddingTrainable or not single(x, weight):
        return False
    found = contexts_of(code, x, lod, contextStart, contextLength)
    k, n = weight.shape
    return matrix_product(code, found, weight, out, (x.shape[0], n, k))


@lowering("sequence_conv_grad")
def sequence_conv_grad(
    code: Code, x: Value, lod: Value, padding: Value | None, weight: Value, d_out: Value,
    dx: Value | None, d_padding: Value | None, d_weight: Value | None,
    *, contextLength: int, contextStart: int, paddingTrainable: bool,
) -> Any:  # fmt: skip
    """The gradients of the product; a row's gradient is the sum over the contexts that it is in."""
    if paddingTrainable or not single(x, weight, d_out):
        return False
    (rows, width), (k, n) = x.shape, weight.shape
    if d_weight is not None:
        found = contexts_of(code, x, lod, contextStart, contextLength)
        matrix_product(code, found, d_out, d_weight, (k, n, rows), (True, False))
    if dx is None:
        return None
    alone = (contextStart, contextLength) == (0, 1)
    d_found = dx if alone else code.scratch(rows, k)
    matrix_product(code, d_out, weight, d_found, (rows, k, n), (False, True))
    if not alone:
        sizes = lod.shape[0] - 1, width, contextStart, contextLength
        code.emit(_contexts_grad, *sizes, lod, d_found, dx)


@kernel
def _ahead(
    sequences: Count, width: Count, steps: Count, offsets: Integers, x: Floats, weight: Floats,
    out: Floats,
) -> int:  # fmt: skip
    """The weighted sums of each row and the rows after it in its sequence.

    Arguments: sequences, width of rows, rows of a sum, offsets, rows, weights, sums.
    """
    for sequence in range(sequences):
        end = offsets[sequence + 1]
        for row in range(offsets[sequence], end):
            o = row * width
            for j in range(width):
                out[o + j] = x[o + j] * weight[j]
            for step in range(1, min(steps, end - row)):
                i, w = (row + step) * width, step * width
                for j in range(width):
                    out[o + j] += x[i + j] * weight[w + j]
    return 0


@kernel
def _ahead_of_rows(
    sequences: Count, width: Count, steps: Count, offsets: Integers, d_out: Floats, weight: Floats,
    dx: Floats,
) -> int:  # fmt: skip
    """The gradient of the rows of such sums.

    Arguments: sequences, width of rows, rows of a sum, offsets, gradient of sums, weights,
    gradient of rows.
    """
    for sequence in range(sequences):
        first = offsets[sequence]
        for row in range(first, offsets[sequence + 1]):
            i = row * width
            for j in range(width):
                dx[i + j] = d_out[i + j] * weight[j]
            for step in range(1, min(steps, row - first + 1)):
                o, w = (row - step) * width, step * width
                for j in range(width):
                    dx[i + j] += d_out[o + j] * weight[w + j]
    return 0


@kernel
def _ahead_of_weights(
    sequences: Count, width: Count, steps: Count, offsets: Integers, x: Floats, d_out: Floats,
    d_weight: Floats,
) -> int:  # fmt: skip
    """The gradient of the weights of such sums.

    Arguments: sequences, width of rows, rows of a sum, offsets, rows, gradient of sums, gradient of
    weights.
    """
    for j in range(steps * width):
        d_weight[j] = _ZERO
    for sequence in range(sequences):
        end = offsets[sequence + 1]
        for row in range(offsets[sequence], end):
            o = row * width
            for step in range(min(steps, end - row)):
                i, w = (row + step) * width, step * width
                for j in range(width):
                    d_weight[w + j] += x[i + j] * d_out[o + j]
    return 0


@lowering("row_conv")
def row_conv(code: Code, x: Value, lod: Value | None, weight: Value, out: Value) -> Any:
    """One pass, if X has sequences."""
    if lod is None or not single(x, weight):
        return False
    steps, width = weight.shape
    code.emit(in_bounds, lod.shape[0] - 1, lod, x.shape[0])
    code.emit(_ahead, lod.shape[0] - 1, width, steps, lod, x, weight, out)


@lowering("row_conv_grad")
def row_conv_grad(
    code: Code, x: Value, lod: Value | None, weight: Value, d_out: Value, dx: Value | None,
    d_weight: Value | None,
) -> Any:  # fmt: skip
    """A pass for each gradient."""
    if lod is None or not single(x, weight, d_out):
        return False
    steps, width = weight.shape
    sizes = lod.shape[0] - 1, width, steps, lod
    if dx is not None:
        code.emit(_ahead_of_rows, *sizes, d_out, weight, dx)
    if d_weight is not None:
        code.emit(_ahead_of_weights, *sizes, x, d_out, d_weight)


CONTEXTS = Contexts(_of_rows, _gradient)
"""Like :data:`dpexec.engine.ops._contexts.ON_ARRAYS`, which is used where there are no kernels."""

implementation(
    "sequence_conv", "sequence_conv_grad", "fusion_seqconv_eltadd_relu",
    backend="host", per_operator=True,
)(with_arguments(neighbours=CONTEXTS))  # fmt: skip
