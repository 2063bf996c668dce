"""``squeeze2`` and ``unsqueeze2``: dimensions of 1 removed and inserted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._kept_rows import same_elements, with_rows
from dpexec.engine.ops._shapes import as_ints, integers, require_axis, require_numbers
from dpexec.engine.ops._xshape import (
    infer_from_xshape,
    restored,
    with_double_gradient,
    xshape_array,
    xshape_spec,
)


def infer_squeeze(x: Spec, *, axes: Sequence[int] = ()) -> tuple[Spec, Spec]:
    """Without the dimensions, and the shape that there was."""
    removed = {require_axis(axis, x, attribute="axes") for axis in as_ints(axes)}
    for axis in removed:
        require(
            x.shape[axis] in (1, -1),
            f"dimension {axis} of X {x} cannot be removed: it is not 1",
        )
    made = _squeezed(x.shape, axes)
    return with_rows(x, made), xshape_spec(x)


def _squeezed(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Without the dimensions ``axes``; without any dimension of 1 if there are none."""
    if not axes:
        return tuple(dim for dim in shape if dim != 1)
    removed = {axis % len(shape) for axis in axes}
    return tuple(dim for i, dim in enumerate(shape) if i not in removed)


def squeezed_rows_stay(op: Operator, x: Spec, out: Spec) -> bool | None:
    """Without axes, a batch of one row loses its rows."""
    return same_elements(op, x, out) if op.attr("axes") or x.shape[0] >= 0 else None


@op(
    "squeeze2",
    inputs="X",
    outputs="Out XShape",
    infer=infer_squeeze,
    samples=lambda r: [
        Sample({"X": r.normal((2, 1, 3, 1))}, {"axes": [1, -1]}),
        Sample({"X": r.normal((2, 1, 3, 1))}, {"axes": [3]}),
        Sample({"X": r.normal((2, 1, 3, 1))}),
    ],
    capturable=True,
    makes_numbers=True,
    grad_lod="own",
    rows_stay=squeezed_rows_stay,
    flops=0,
)
def squeeze2(xp: Any, x: Any, *, axes: Sequence[int] = ()) -> Any:
    """``x`` without the dimensions ``axes``, or without every dimension of 1; a view.

    Source: Paddle op ``squeeze2``.
    """
    return x.reshape(_squeezed(x.shape, axes)), xshape_array(xp, x)


@squeeze2.grad("XShape", "Out@GRAD", outputs="X@GRAD", infer=infer_from_xshape)
def squeeze2_grad(xp: Any, xshape: Any, d_out: Any) -> Any:
    """The gradient in the shape of X; a view."""
    return restored(xshape, d_out)


with_double_gradient(squeeze2_grad)


def _unsqueezed(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """With dimensions of 1 inserted, one axis after another."""
    made = list(shape)
    for axis in axes:
        require(
            -len(made) - 1 <= axis <= len(made),
            f"axes are {list(axes)}, but {axis} lies outside the shape {made} so far",
        )
        made.insert(axis if axis >= 0 else len(made) + 1 + axis, 1)
    return tuple(made)


def infer_unsqueeze(
    x: Spec, tensor: Spec | None, parts: list[Spec], *, axes: Sequence[int] = ()
) -> tuple[Spec, Spec]:
    """With the dimensions, and the shape that there was."""
    require_numbers(parts, "AxesTensorList")
    if tensor is not None:
        require(tensor.rank == 1, f"AxesTensor {tensor} must be a vector of axes")
    if parts or tensor is not None:
        count = len(parts) or (tensor.shape[0] if tensor is not None else 0)
        require(count > 0, f"AxesTensor {tensor} must have a known length")
        return x.replace(shape=(-1,) * (x.rank + count), lod_level=0), xshape_spec(x)
    made = _unsqueezed(x.shape, as_ints(axes))
    return with_rows(x, made), xshape_spec(x)


def unsqueezed_rows_stay(op: Operator, x: Spec, out: Spec) -> bool | None:
    """Paddle keeps no sequences where variables give the axes: it does not know them."""
    given = op.inputs.get("AxesTensor") or op.inputs.get("AxesTensorList")
    return False if given else same_elements(op, x, out)


@op(
    "unsqueeze2",
    inputs="X AxesTensor? AxesTensorList?[]",
    outputs="Out XShape",
    infer=infer_unsqueeze,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, {"axes": [0, 2]}),
        Sample({"X": r.normal((2, 3))}, {"axes": [-1, 0]}),
        Sample({"X": r.normal((2, 3)), "AxesTensor": np.array([1])}),
        Sample({"X": r.normal((2, 3)), "AxesTensorList": [np.array([0]), np.array([0])]}),
    ],
    capturable=True,
    host_inputs="AxesTensor AxesTensorList",
    makes_numbers=True,
    grad_lod="own",
    rows_stay=unsqueezed_rows_stay,
    flops=0,
)
def unsqueeze2(xp: Any, x: Any, tensor: Any, parts: list[Any], *, axes: Sequence[int] = ()) -> Any:
    """``x`` with a dimension of 1 inserted at each of ``axes``, one after another; a view.

    The variables replace ``axes``. Source: Paddle op ``unsqueeze2``.
    """
    return x.reshape(_unsqueezed(x.shape, integers(as_ints(axes), tensor, parts))), xshape_array(
        xp, x
    )


@unsqueeze2.grad("XShape", "Out@GRAD", outputs="X@GRAD", infer=infer_from_xshape)
def unsqueeze2_grad(xp: Any, xshape: Any, d_out: Any) -> Any:
    """The gradient in the shape of X; a view."""
    return restored(xshape, d_out)


with_double_gradient(unsqueeze2_grad)
