"""``tensor_array_to_tensor``: the entries of an array as one tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Spec, op, require


def _infer(x: Spec, *, axis: int = 0, use_stack: bool = False) -> tuple[Spec, Spec]:
    require(x.kind == VarType.LOD_TENSOR_ARRAY, f"X must be a LoDTensorArray, but it is {x}")
    rank = x.rank + use_stack
    require(-rank <= axis < rank, f"axis {axis} is none of the {rank} of the result")
    place = axis % rank
    shape = (*x.shape[:place], -1, *x.shape[place + (not use_stack) :])
    return x.replace(shape=shape, kind=VarType.LOD_TENSOR), Spec((-1,), VarType.INT32)


@op(
    "tensor_array_to_tensor",
    inputs="X",
    outputs="Out OutIndex",
    infer=_infer,
    checks_values=True,
)
def tensor_array_to_tensor(
    xp: Any, x: TensorArray, *, axis: int = 0, use_stack: bool = False
) -> tuple[Any, Any]:
    """The entries of an array, concatenated or stacked, and the size of each along the axis.

    Source: Paddle op ``tensor_array_to_tensor``.

    Args:
        xp: the array library.
        x: the array.
        axis: the axis along which they are joined.
        use_stack: whether the axis is a new one.

    Raises:
        ValueError: there are no entries, nothing was written to one of them, or their shapes do
            not fit.
    """
    entries = _entries(x)
    join = xp.stack if use_stack else xp.concatenate
    out = join(entries, axis=axis)
    sizes = [(*entry.shape, 1)[axis % out.ndim] for entry in entries]
    return out, xp.asarray(np.array(sizes, np.int32))


def _entries(x: TensorArray) -> list[Any]:
    found = [entry[0] for entry in x if entry is not None]
    if not found or len(found) < len(x):
        raise ValueError(f"all entries must have been written, and one at least, but it is {x}")
    return found


@tensor_array_to_tensor.grad("X", "Out@GRAD", infer=lambda x, d_out, **_: x)
def tensor_array_to_tensor_grad(
    xp: Any, x: TensorArray, d_out: Any, *, axis: int = 0, use_stack: bool = False
) -> TensorArray:
    """Every entry gets its part."""
    entries = _entries(x)
    if use_stack:
        parts = xp.moveaxis(d_out, axis, 0)
    else:
        ends = np.cumsum([entry.shape[axis] for entry in entries])
        parts = xp.split(d_out, ends[:-1].tolist(), axis=axis)
    lods = (entry[1] for entry in x if entry is not None)
    return TensorArray(zip(map(xp.ascontiguousarray, parts), lods, strict=True))
