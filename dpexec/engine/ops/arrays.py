"""Arrays of tensors: writing and reading an entry, and the number of entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import NO_SEQUENCES, Lod
from dpexec.engine.ir import roles
from dpexec.engine.ir.opdef import GradContext, GradOp, Passing, RoundValues, Spec, op, require
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._tables import first_name, levels_of, offsets


def _check_index(index: Spec) -> None:
    require(
        index.dtype == VarType.INT64 and index.size in (1, -1),
        f"the index I must be int64 with one element, but it is {index}",
    )


def _check_array(x: Spec) -> None:
    require(x.kind == VarType.LOD_TENSOR_ARRAY, f"X must be a LoDTensorArray, but it is {x}")


def _number(index: Any) -> int:
    return int(index.item())


def _infer_write(x: Spec, lod: Spec | None, index: Spec) -> Spec:
    _check_index(index)
    return x.replace(kind=VarType.LOD_TENSOR_ARRAY, lod_level=levels_of(x, lod))


def _pass_written(op: Operator) -> Callable[[RoundValues], bool]:
    """Adding to an entry looks at numbers; anything else passes an array on."""
    x, x_lod, index = (first_name(op.inputs, slot) for slot in ("X", "X@LOD", "I"))
    out = first_name(op.outputs, "Out")
    adds = bool(op.role & roles.BACKWARD)
    own = out in op.block.vars  # not one of that name around

    def passes(values: RoundValues) -> bool:
        array = values.get(out) if own else values.find(out)
        number = values[index].item()
        if number < 0:
            return False
        array = TensorArray() if array is None else array
        if adds and array.entry(number) is not None:
            values.deferred.finish()
            return False
        values[out] = array.written(number, values[x], values[x_lod] if x_lod else None)
        return True

    return passes


@op(
    "write_to_array",
    inputs="X X@LOD? I",
    infer=_infer_write,
    checks_values=True,
    host_inputs="I",
    passes=Passing(_pass_written, looks_at=("I",), code="write", slots=("Out", "X", "I", "X@LOD")),
)
def write_to_array(
    xp: Any,
    x: Any,
    lod: Lod | None,
    index: Any,
    *,
    before: TensorArray | None = None,
    backward: bool = False,
) -> TensorArray:
    """The array ``Out`` with ``x`` as entry number ``I``; the array grows if necessary.

    In a backward pass, as the gradient of reading, ``x`` is added to the existing entry.

    Source: Paddle op ``write_to_array``.

    Args:
        xp: the array library.
        x: any tensor.
        lod: its sequences.
        index: int64, one element.
        before: the array before this operator.
        backward: whether this is a backward pass.
    """
    array, number = TensorArray() if before is None else before, _number(index)
    entry = array.entry(number) if backward else None
    return array.written(number, x if entry is None else x + entry[0], lod)


@write_to_array.grad_maker
def write_to_array_grad(context: GradContext) -> list[GradOp]:
    """The entry of the array's gradient; zeros like ``X`` if the entry has no gradient."""
    inputs = {
        "X": context.output_grads["Out"],
        "I": context.op.inputs["I"],
        "X_W": context.op.inputs["X"],
    }
    attrs = context.op.plain_attrs()
    return [GradOp("read_from_array", inputs, {"Out": context.input_grads["X"]}, attrs)]


def _infer_read(
    x: Spec, index: Spec, like: Spec | None, lod: Spec | None
) -> tuple[Spec, Spec | None]:
    _check_array(x)
    _check_index(index)
    if like is None:
        return x.replace(kind=VarType.LOD_TENSOR), offsets(x.lod_level)
    return like, offsets(levels_of(like, lod))


def _pass_read(op: Operator) -> Callable[[RoundValues], bool]:
    """An entry that is there."""
    x, index = first_name(op.inputs, "X"), first_name(op.inputs, "I")
    out, out_lod = first_name(op.outputs, "Out"), first_name(op.outputs, "Out@LOD")

    def passes(values: RoundValues) -> bool:
        entry = values[x].entry(values[index].item())
        if entry is None:
            return False
        values[out] = entry[0]
        if out_lod:
            values[out_lod] = entry[1]
        return True

    return passes


@op(
    "read_from_array",
    inputs="X I X_W? X_W@LOD?",
    outputs="Out Out@LOD",
    infer=_infer_read,
    checks_values=True,
    host_inputs="I",
    passes=Passing(
        _pass_read,
        looks_at=("I",),
        unseen="Out",
        code="read",
        slots=("Out", "X", "I", "X_W", "Out@LOD"),
    ),
)
def read_from_array(
    xp: Any, x: TensorArray, index: Any, like: Any, lod: Lod | None
) -> tuple[Any, Lod]:
    """Entry number ``I`` of an array, with its sequences.

    Source: Paddle op ``read_from_array``.

    Args:
        xp: the array library.
        x: the array.
        index: int64, one element.
        like: if the array is a gradient: the tensor whose gradient the entry is. Without such an
            entry, the result is zeros like it.
        lod: the sequences of that tensor.

    Raises:
        ValueError: there is no such entry.
    """
    entry = x.entry(_number(index))
    if entry is not None:
        return entry
    if like is None:
        raise ValueError(f"the array has {len(x)} entries, but none of number {_number(index)}")
    return xp.zeros_like(like), lod or NO_SEQUENCES


@read_from_array.grad_maker
def read_from_array_grad(context: GradContext) -> list[GradOp]:
    """An array with the gradient as its entry."""
    inputs = {"X": context.output_grads["Out"], "I": context.op.inputs["I"]}
    attrs = context.op.plain_attrs()
    return [GradOp("write_to_array", inputs, {"Out": context.input_grads["X"]}, attrs)]


def _infer_length(x: Spec) -> Spec:
    _check_array(x)
    return Spec((1,), VarType.INT64)


@op(
    "lod_array_length",
    inputs="X",
    infer=_infer_length,
    no_grad=True,
    lazy=True,
    makes_numbers=True,
    shape_inputs="X",
)
def lod_array_length(xp: Any, x: TensorArray | None) -> Any:
    """The number of entries of an array, int64 ``(1,)``; 0 if nothing was written.

    Source: Paddle op ``lod_array_length``.
    """
    return xp.full(1, 0 if x is None else len(x), np.int64)
