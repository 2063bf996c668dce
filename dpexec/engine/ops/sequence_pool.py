"""``sequence_pool``: one row for every sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, op, require
from dpexec.engine.ir.signature import default_grad_op
from dpexec.engine.ops._sequences import (
    OverSequences,
    coarser,
    column,
    greatest_rows,
    per_row,
    require_sequences,
    sequence_count,
    sequence_sums,
)
from dpexec.engine.ops._shapes import require_float

_MEANS = {
    "SUM": lambda lengths: np.ones(lengths.shape),
    "AVERAGE": lambda lengths: 1 / np.maximum(lengths, 1),
    "SQRT": lambda lengths: 1 / np.sqrt(np.maximum(lengths, 1)),
}
"""The factor of the sum over a sequence, by its length."""

_TYPES = (*_MEANS, "MAX", "FIRST", "LAST")


def _infer(
    x: Spec, lod: Spec | None, *, pooltype: str = "AVERAGE", is_test: bool = False
) -> tuple[Spec, Spec | None, Spec | None]:
    require_float(x)
    require(x.rank, f"X {x} has no rows")
    require_sequences(x, lod)
    require(pooltype in _TYPES, f"pooltype must be {', '.join(_TYPES)}, but is {pooltype!r}")
    rows = x.shape[0] if lod is None else sequence_count(lod)  # the layer declares it like X
    out = x.replace(shape=(rows, *x.shape[1:]), lod_level=max(x.lod_level - 1, 0))
    number = x.dtype if lod is None else VarType.INT32  # fluid's layer declares it like X
    index = out.replace(dtype=number, lod_level=0) if pooltype == "MAX" and not is_test else None
    return out, index, coarser(lod)


def _samples(r: Any) -> list[Sample]:
    one, two = Lod([[0, 2, 2, 5]]), Lod([[0, 1, 1, 4], [0, 2, 3, 3, 7]])
    return [
        Sample(
            {"X": np.array([[1.0], [3.0], [2.0], [4.0], [6.0]]), "X@LOD": one},
            {"pooltype": "AVERAGE", "pad_value": 0.5},
            expected={"Out": np.array([[2.0], [0.5], [4.0]])},
        ),
        *[
            Sample({"X": r.distinct((7, 3)), "X@LOD": two}, {"pooltype": kind, "pad_value": -1.0})
            for kind in _TYPES
        ],
        Sample({"X": r.distinct((5, 2, 2)), "X@LOD": one}, {"pooltype": "MAX"}),
        Sample({"X": r.distinct((5, 2)), "X@LOD": one}, {"pooltype": "MAX", "is_test": True}, ()),
        Sample({"X": np.ones((5, 800)), "X@LOD": one}, {"pooltype": "SQRT"}, ()),
    ]


@op(
    "sequence_pool",
    inputs="X X@LOD",
    outputs="Out MaxIndex Out@LOD",
    infer=_infer,
    samples=_samples,
    operand_ulps=2,
    grad_lod="own",
    flops=per_element("X", 1),
)
def sequence_pool(
    xp: Any,
    x: Any,
    lod: Lod,
    sums: OverSequences = sequence_sums,
    maxima: OverSequences = greatest_rows,
    *,
    pooltype: str = "AVERAGE",
    pad_value: float = 0.0,
    is_test: bool = False,
) -> tuple[Any, Any, Lod]:
    """One row for every sequence: the sum, mean or maximum of its rows, or its first or last row.

    ``SQRT`` is the sum divided by the root of the length. Sequences without rows become
    ``pad_value``. ``MaxIndex`` has the rows of the maxima (the first of equal ones), -1 for
    sequences without rows. With two levels, the finest one is pooled. Source: Paddle op
    ``sequence_pool``.
    """
    filled, index = lod.lengths > 0, None
    if not len(x):  # then there is nothing to choose from
        out = xp.empty((len(filled), *x.shape[1:]), x.dtype)
        index = xp.full(out.shape, -1, np.int32) if pooltype == "MAX" else None
    elif pooltype in _MEANS:
        out = sums(xp, x, lod)
        if pooltype != "SUM":
            out *= column(xp, _MEANS[pooltype](lod.lengths), out)
    elif pooltype == "MAX":
        out, index = maxima(xp, x, lod)
    else:
        out = x[xp.asarray(np.where(filled, _ends(lod, pooltype), 0))]
    if not filled.all():
        out[xp.asarray(np.flatnonzero(~filled))] = pad_value
    return out, None if is_test else index, Lod(lod.levels[:-1])


def _ends(lod: Lod, pooltype: str) -> np.ndarray[Any, Any]:
    """The rows that are first or last."""
    return lod.offsets[:-1] if pooltype == "FIRST" else lod.offsets[1:] - 1


def _infer_grad(
    x: Spec, lod: Spec | None, index: Spec | None, d_out: Spec, *, pooltype: str = "AVERAGE"
) -> Spec:
    require(
        pooltype != "MAX" or index is not None,
        "there is no gradient of MAX with is_test: it does not keep which rows are the greatest",
    )
    return x


_GRAD_SLOTS = ("X", "X@LOD", "MaxIndex", "Out@GRAD")


@sequence_pool.grad(
    "X", "X@LOD", "MaxIndex?", "Out@GRAD", outputs="X@GRAD", infer=_infer_grad, operand_ulps=1
)
def sequence_pool_grad(
    xp: Any, x: Any, lod: Lod, index: Any, d_out: Any, *, pooltype: str = "AVERAGE"
) -> Any:
    """The gradient of a sequence, for every row that took part."""
    if pooltype == "SUM":
        return per_row(xp, d_out, lod)
    if pooltype in _MEANS:
        return per_row(xp, d_out * column(xp, _MEANS[pooltype](lod.lengths), d_out), lod)
    grad, filled = xp.zeros(x.shape, d_out.dtype), lod.lengths > 0
    chosen = d_out if filled.all() else d_out[xp.asarray(np.flatnonzero(filled))]
    if pooltype == "MAX":
        rows = index if filled.all() else index[xp.asarray(np.flatnonzero(filled))]
        xp.put_along_axis(grad, rows, chosen, axis=0)
    else:
        grad[xp.asarray(_ends(lod, pooltype)[filled])] = chosen
    return grad


@sequence_pool.grad_maker
def _grad_maker(context: GradContext) -> list[GradOp]:
    """The gradient reads the positions of maxima only for ``MAX``."""
    slots = [s for s in _GRAD_SLOTS if s != "MaxIndex" or context.op.attr("pooltype") == "MAX"]
    return [default_grad_op(context, slots, ("X@GRAD",))]
