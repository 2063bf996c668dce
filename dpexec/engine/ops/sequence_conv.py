"""``sequence_conv``: a convolution along every sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, dims_match, op, require
from dpexec.engine.ir.signature import default_grad_op
from dpexec.engine.ops._contexts import ON_ARRAYS, Contexts, ends, steps
from dpexec.engine.ops._rows import added_rows
from dpexec.engine.ops._sequences import Ints, row_owners
from dpexec.engine.ops._shapes import require_same_dtype


def _infer(
    x: Spec,
    lod: Spec | None,
    padding: Spec | None,
    weight: Spec,
    *,
    contextLength: int,
    contextStart: int = 0,
    contextStride: int = 1,
    paddingTrainable: bool = False,
) -> Spec:
    require_same_dtype(x, weight, "X and Filter")
    require(x.rank == weight.rank == 2, f"X {x} and Filter {weight} must have two dimensions")
    require(contextLength > 0, f"contextLength must be positive, but is {contextLength}")
    require(contextStride == 1, f"contextStride can only be 1, but is {contextStride}")
    require(
        x.shape[1] < 0 or dims_match(weight.shape[0], contextLength * x.shape[1]),
        f"Filter {weight} must have as many rows as {contextLength} rows of X {x} have numbers",
    )
    if paddingTrainable:
        rows = sum(_reach(contextStart, contextLength))
        require(
            padding is not None
            and padding.rank == 2
            and dims_match(padding.shape[0], rows)
            and dims_match(padding.shape[1], x.shape[1]),
            f"PaddingData {padding} must have {rows} rows of the width of X {x}",
        )
    return x.replace(shape=(x.shape[0], weight.shape[1]))


def _reach(start: int, length: int) -> tuple[int, int]:
    """How far contexts reach beyond the ends of a sequence, before and after it."""
    return max(-start, 0), max(start + length - 1, 0)


def _sample(r: Any, start: int, length: int, trained: bool = False) -> Sample:
    inputs = {
        "X": r.normal((7, 2)),
        "X@LOD": Lod([[0, 3, 3, 4, 7]]),
        "Filter": r.normal((length * 2, 3)),
    }
    if trained:
        inputs["PaddingData"] = r.normal((sum(_reach(start, length)), 2))
    attrs = {"contextLength": length, "contextStart": start, "contextStride": 1}
    late = start > 0 and not trained
    deviates = (
        {
            "Filter@GRAD": (
                "adds old contents of its buffer to the gradient, where contexts begin after "
                "the first row; dpexec gives the derivative"
            )
        }
        if late
        else {}
    )
    return Sample(inputs, {**attrs, "paddingTrainable": trained}, deviates=deviates)


_SLOTS = ("X", "X@LOD", "PaddingData", "Filter", "Out@GRAD")


@op(
    "sequence_conv",
    inputs="X X@LOD PaddingData? Filter",
    infer=_infer,
    samples=lambda r: [
        _sample(r, -1, 3),
        _sample(r, 0, 1),
        _sample(r, -1, 2),
        _sample(r, 1, 4),
        _sample(r, -2, 4, trained=True),
        _sample(r, 1, 2, trained=True),
    ],
    operand_ulps=4,
    grad_lod="own",
    macs=lambda call: call.size("Out") * call.shape("Filter")[0],
)
def sequence_conv(
    xp: Any,
    x: Any,
    lod: Lod,
    padding: Any,
    weight: Any,
    neighbours: Contexts = ON_ARRAYS,
    *,
    contextLength: int,
    contextStart: int = 0,
    paddingTrainable: bool = False,
) -> Any:
    """The context of every row, times Filter.

    The context consists of ``contextLength`` rows, beginning ``contextStart`` rows after the row
    (before it if negative). Rows outside its sequence are 0, or rows of ``PaddingData`` with
    ``paddingTrainable``. Source: Paddle op ``sequence_conv``.
    """
    pads = padding if paddingTrainable else None
    found = neighbours.of_rows(xp, x, lod, contextStart, contextLength)
    return _matrix(xp, found, lod, pads, contextStart) @ weight


def _matrix(xp: Any, found: Any, lod: Lod, padding: Any, start: int) -> Any:
    """The context of every row, with padding, as one row, ``(rows, length * width)``."""
    rows, length, width = found.shape
    if padding is not None:
        for position, beyond, pads in _padded(lod, start, length):
            found[xp.asarray(beyond), position] = padding[xp.asarray(pads)]
    return found.reshape(rows, length * width)


def _padded(lod: Lod, start: int, length: int) -> list[tuple[int, Ints, Ints]]:
    """For each position in contexts, the rows for which it is padding, and the padding's row."""
    before = _reach(start, length)[0]
    owners, found = row_owners(lod), []
    for position, step in steps(start, length):
        rows = ends(lod, step)
        first = lod.offsets[owners[rows] + (step > 0)]  # of the sequence, or after it
        found.append((position, rows, rows + step - first + before))
    return found


@sequence_conv.grad(
    "X X@LOD PaddingData? Filter Out@GRAD",
    outputs="X@GRAD PaddingData@GRAD Filter@GRAD",
    operand_ulps=2,
)
def sequence_conv_grad(
    xp: Any,
    x: Any,
    lod: Lod,
    padding: Any,
    weight: Any,
    d_out: Any,
    neighbours: Contexts = ON_ARRAYS,
    *,
    contextLength: int = 0,
    contextStart: int = 0,
    paddingTrainable: bool = False,
    needs: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """The gradients of a matrix product, added up for each row."""
    d_x = d_padding = d_weight = None
    if needs[2]:
        pads = padding if paddingTrainable else None
        found = neighbours.of_rows(xp, x, lod, contextStart, contextLength)
        d_weight = _matrix(xp, found, lod, pads, contextStart).T @ d_out
    if needs[0] or needs[1]:
        d_context = (d_out @ weight.T).reshape(len(x), contextLength, x.shape[1])
        if needs[1]:
            pieces = _padded(lod, contextStart, contextLength)
            numbers = np.concatenate([pads for _, _, pads in pieces])
            values = xp.concatenate([d_context[xp.asarray(rows), p] for p, rows, _ in pieces])
            d_padding = added_rows(xp, xp.asarray(numbers), values, padding.shape)
        if needs[0]:
            d_x = neighbours.gradient(xp, d_context, lod, contextStart)
    return d_x, d_padding, d_weight


@sequence_conv.grad_maker
def _grad_maker(context: GradContext) -> list[GradOp]:
    """The gradient reads padding only if it is trained."""
    trained = context.op.attr("paddingTrainable")
    slots = [slot for slot in _SLOTS if trained or slot != "PaddingData"]
    made = ("X@GRAD", "PaddingData@GRAD", "Filter@GRAD")
    return [default_grad_op(context, slots, made)]
