"""``reshape2`` and ``flatten2``: the same elements in another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._kept_rows import same_elements, with_rows
from dpexec.engine.ops._shapes import integers, product, require_numbers
from dpexec.engine.ops._xshape import (
    infer_from_xshape,
    restored,
    with_double_gradient,
    xshape_array,
    xshape_spec,
)

Shape = Sequence[int]


def _with_copied(shape: Shape, x: Spec) -> list[int]:
    """Every 0 replaced by the dimension of X at its place."""
    require(
        all(dim > 0 or (dim == 0 and i < x.rank) or dim == -1 for i, dim in enumerate(shape)),
        f"attribute shape is {list(shape)}, but must hold positive numbers, one -1 at most, "
        f"and 0 only where X {x} has a dimension to copy",
    )
    return [x.shape[i] if dim == 0 else dim for i, dim in enumerate(shape)]


def resolved(shape: Shape, x: Spec) -> tuple[int, ...]:
    """The shape that the attribute denotes, -1 where it is unknown.

    Raises:
        InvalidOp: it does not have as many elements as X.
    """
    made = _with_copied(shape, x)
    require(
        list(shape).count(-1) <= 1,
        f"X {x} cannot be given the shape {list(shape)}: only one dimension may be -1",
    )
    # Unknown dimensions that are copied cancel out, so that the others can still be compared.
    copied = [i for i, dim in enumerate(shape) if dim == 0]
    before = product([dim for i, dim in enumerate(x.shape) if i not in copied])
    rest = [dim for i, dim in enumerate(made) if i not in copied]
    if -1 not in rest:
        require(
            dims_match(before, product(rest)),
            f"X {x} cannot be given the shape {list(shape)}: it has not as many elements",
        )
        return tuple(made)
    known = product([dim for dim in rest if dim != -1])
    if before < 0:
        return tuple(made)
    require(
        known > 0 and before % known == 0,
        f"X {x} cannot be given the shape {list(shape)}: its size is no multiple of the others",
    )
    return tuple(before // known if dim == -1 and shape[i] == -1 else dim
                 for i, dim in enumerate(made))  # fmt: skip


def _partly_known(shape: Shape, rank: int, x: Spec) -> tuple[int, ...]:
    """The known part of a shape that variables complete, from the attribute; -1 elsewhere."""
    return tuple(_with_copied(shape, x)) if len(shape) == rank else (-1,) * rank


def _infer(
    x: Spec, tensor: Spec | None, parts: list[Spec], *, shape: Shape = ()
) -> tuple[Spec, Spec]:
    require_numbers(parts, "ShapeTensor")
    told = tuple(number for part in parts or (tensor,) for number in (part and part.numbers) or ())
    if len(told) == (len(parts) if tensor is None else tensor.shape[0]) > 0:
        made = resolved(told, x)
    elif parts:
        made = _partly_known(shape, len(parts), x)
    elif tensor is not None:
        length = tensor.shape[0] if tensor.rank == 1 and tensor.shape[0] > 0 else len(shape)
        require(
            tensor.rank == 1 and length,
            f"Shape {tensor} must be a vector of known length, unless the attribute shape has one",
        )
        made = (-1,) * length
    else:
        require(shape, "attribute shape is empty")
        made = resolved(shape, x)
    if parts:  # Paddle keeps no sequences: it does not know the dimensions
        return x.replace(shape=made, lod_level=0), xshape_spec(x)
    known = made if tensor is None else tuple(shape)  # Paddle compares the attribute
    level = with_rows(x, x.shape if known[:1] == (0,) else known).lod_level
    return x.replace(shape=made, lod_level=level), xshape_spec(x)


def rows_stay(op: Operator, x: Spec, out: Spec) -> bool | None:
    """Whether the rows stay the same; None if only a run tells."""
    return False if op.inputs.get("ShapeTensor") else same_elements(op, x, out)


def _keeps_shape(op: Operator) -> bool:
    found = op._variables([*op.inputs["X"], *op.outputs["Out"]])
    shapes = {var.shape for var in found.values()}
    return len(shapes) == 1 and sum(dim < 0 for dim in shapes.pop()) < 2


@op(
    "reshape2",
    inputs="X Shape? ShapeTensor?[]",
    outputs="Out XShape",
    infer=_infer,
    attrs={"use_quantizer": False},
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 4))}, {"shape": [0, -1]}),
        Sample({"X": r.normal((2, 3, 4))}, {"shape": [-1, 2, 3]}),
        Sample({"X": r.normal((2, 6))}, {"shape": [3, 4]}),
        Sample({"X": r.normal((2, 6)), "Shape": np.array([4, 3], np.int32)}, {"shape": [-1, 3]}),
        Sample(
            {"X": np.arange(4.0), "ShapeTensor": [np.array([n], np.int32) for n in (2, -1)]},
            {"shape": [2, -1]},
            expected={"Out": np.array([[0.0, 1.0], [2.0, 3.0]])},
        ),
    ],
    capturable=True,
    copies=_keeps_shape,
    host_inputs="Shape ShapeTensor",
    makes_numbers=True,
    grad_lod="own",
    precision="gray",
    quantized="inputs outputs",
    rows_stay=rows_stay,
    flops=0,
)
def reshape2(xp: Any, x: Any, tensor: Any, parts: list[Any], *, shape: Shape = ()) -> Any:
    """The elements of ``x`` in another shape; a view.

    In ``shape`` 0 copies the dimension of ``x`` at that position, and one -1 takes the remaining
    elements; ``ShapeTensor`` and ``Shape`` replace it. Source: Paddle op ``reshape2``.
    """
    wanted = integers(shape, tensor, parts)
    made = tuple(x.shape[i] if dim == 0 else dim for i, dim in enumerate(wanted))
    return x.reshape(made), xshape_array(xp, x)


@reshape2.grad("XShape", "Out@GRAD", outputs="X@GRAD", infer=infer_from_xshape)
def reshape2_grad(xp: Any, xshape: Any, d_out: Any) -> Any:
    """The gradient in the shape of X; a view."""
    return restored(xshape, d_out)


with_double_gradient(reshape2_grad)


def infer_flatten(x: Spec, *, axis: int = 1) -> tuple[Spec, Spec]:
    """The specs of the matrix, and of ``XShape``."""
    require(0 <= axis <= x.rank, f"axis is {axis}, but must lie between 0 and the rank of X {x}")
    shape = (product(x.shape[:axis]), product(x.shape[axis:]))
    level = x.lod_level if x.shape[:1] == (math.prod(x.shape[:axis]),) else 0  # Paddle: -1 * 2 = -2
    return x.replace(shape=shape, lod_level=level), xshape_spec(x)


@op(
    "flatten2",
    inputs="X",
    outputs="Out XShape",
    infer=infer_flatten,
    samples=lambda r: [Sample({"X": r.normal((2, 3, 4))}, {"axis": axis}) for axis in range(4)],
    capturable=True,
    grad_lod="own",
    precision="gray",
    rows_stay=same_elements,
    flops=0,
)
def flatten2(xp: Any, x: Any, *, axis: int = 1) -> Any:
    """A matrix: the dimensions before ``axis`` are its rows, the others its columns; a view.

    Source: Paddle op ``flatten2``.
    """
    shape = (product(x.shape[:axis]), product(x.shape[axis:]))
    return x.reshape(shape), xshape_array(xp, x)


@flatten2.grad("XShape", "Out@GRAD", outputs="X@GRAD", infer=infer_from_xshape)
def flatten2_grad(xp: Any, xshape: Any, d_out: Any) -> Any:
    """The gradient in the shape of X; a view."""
    return restored(xshape, d_out)


with_double_gradient(flatten2_grad)
