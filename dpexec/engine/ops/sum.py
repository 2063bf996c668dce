"""``sum``: tensors added up element by element."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dpexec.engine.core.arrays import Entry, TensorArray
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    Sample,
    SampleRng,
    Spec,
    merge_dim,
    op,
    require,
)
from dpexec.engine.ops._shapes import same_dims


def _rows(r: SampleRng, *rows: int) -> SelectedRows:
    return SelectedRows(np.array(rows), 6, r.normal((len(rows), 2)))


def _infer(xs: list[Spec]) -> Spec:
    first = xs[0]
    if first.kind == VarType.LOD_TENSOR_ARRAY:
        return first
    shape = first.shape
    for spec in xs[1:]:
        require(
            same_dims(spec.shape, shape),
            f"all X must have the same shape, but they are {', '.join(map(str, xs))}",
        )
        require(
            spec.dtype == first.dtype,
            f"all X must have the same data type, but they are {', '.join(map(str, xs))}",
        )
        shape = tuple(map(merge_dim, shape, spec.shape))
    sparse = all(spec.kind == VarType.SELECTED_ROWS for spec in xs)
    kind = VarType.SELECTED_ROWS if sparse else VarType.LOD_TENSOR
    return first.replace(shape=shape, kind=kind)


@op(
    "sum",
    inputs="X[]",
    infer=_infer,
    attrs={"use_mkldnn": False},
    sparse=("X",),
    samples=lambda r: [
        Sample({"X": [r.normal((3, 4)) for _ in range(3)]}),
        Sample({"X": [r.normal((2,))]}),
        Sample({"X": [r.normal((2, 1, 2)) for _ in range(2)]}),
        Sample({"X": [np.array([1, 2]), np.array([10, 20])]}, expected={"Out": np.array([11, 22])}),
        Sample({"X": [_rows(r, 4, 1, 4), _rows(r, 1, 0)]}),
        Sample({"X": [_rows(r, 4, 1), _rows(r, 3, 0)]}),
        Sample({"X": [_rows(r, 4, 1, 4)]}),
        Sample({"X": [r.normal((6, 2)), _rows(r, 4, 1, 4)]}, grad=()),
    ],
    operand_ulps=2,
    capturable=True,
    makes_numbers=True,
    grad_lod="flow",
    precision="black",
    fuses=True,
    folds=True,
    updates="rows",
    flops=lambda call: call.size("X") - call.size("Out"),
)
def sum(xp: Any, xs: list[Any]) -> Any:
    """The sum of all tensors of ``X``, which have one shape.

    If all are SelectedRows, so is the result: it has the rows of all of them, merged if a row
    occurs twice. If only some are, they are added to the dense ones. Arrays of tensors are added
    entry by entry. Source: Paddle op ``sum``.
    """
    if isinstance(xs[0], TensorArray):
        return _sum_of_entries(xp, xs)
    sparse = [x for x in xs if isinstance(x, SelectedRows)]
    if len(sparse) == len(xs):
        return sparse[0].joined(sparse[1:], xp)
    dense = [x for x in xs if not isinstance(x, SelectedRows)]
    out = dense[0] + dense[1] if len(dense) > 1 else dense[0].copy()
    for x in dense[2:]:
        out += x
    for part in sparse:
        part.add_to(xp, out)
    return out


def _sum_of_entries(xp: Any, arrays: list[TensorArray]) -> TensorArray:
    """The sum of the arrays' entries at each position; an entry without partner is not copied."""
    made: list[Entry | None] = []
    for entries in itertools.zip_longest(*arrays):
        found = [entry for entry in entries if entry is not None]
        if len(found) < 2:
            made.append(found[0] if found else None)
        else:
            made.append((sum.kernel(xp, [array for array, _ in found]), found[0][1]))
    return TensorArray(made)


@sum.grad_maker
def sum_grad(context: GradContext) -> list[GradOp]:
    """A ``scale`` by 1 for every input, as Paddle's program dumps show."""
    grads = context.output_grads["Out"]
    return [
        GradOp("scale", {"X": grads}, {"Out": [name]}, {"scale": 1.0})
        for name in context.input_grads["X"]
        if name
    ]
