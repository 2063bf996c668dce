"""Layers that reshape, permute, split, join and repeat tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import NO_HALF, NUMBERS, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.engine.ops.reshape2 import resolved
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import (
    add_op,
    add_outputs,
    check_parts,
    check_positive,
    check_shape,
    number_or_tensor,
    numbers_or_tensors,
)
from dpexec.layers.tensor import assign

__all__ = [
    "concat",
    "expand",
    "expand_as",
    "flatten",
    "flip",
    "rank",
    "reshape",
    "reverse",
    "shape",
    "size",
    "split",
    "squeeze",
    "stack",
    "transpose",
    "unsqueeze",
    "unstack",
]


def concat(
    input: Sequence[Variable] | Variable, axis: int | Variable = 0, name: str | None = None
) -> Variable:
    """Join variables along an axis.

    Args:
        input: variables that agree in all other dimensions.
        axis: axis to join along; a number, or a one-element int32 variable.
        name: prefix of names.

    Returns:
        The joined variable. Source: Paddle op ``concat``.
    """
    parts = list(input) if isinstance(input, (list, tuple)) else [input]
    for number, part in enumerate(parts):
        check_variable_and_dtype(part, f"input[{number}]", NUMBERS, "concat")
    check_type(axis, "axis", (int, Variable), "concat")
    helper = LayerHelper("concat", input=parts, name=name)
    inputs: dict[str, Any] = {"X": parts}
    attrs: dict[str, Any] = {}
    number_or_tensor(axis, "AxisTensor", "axis", inputs, attrs)
    return add_outputs(helper, inputs, {"Out": helper.input_dtype()}, attrs)["Out"]


def split(
    input: Variable,
    num_or_sections: int | Sequence[int | Variable],
    dim: int | Variable = -1,
    name: str | None = None,
) -> list[Variable]:
    """Cut a variable along an axis.

    Args:
        input: any shape.
        num_or_sections: number of equal parts, or a list of sizes, where -1 (once) means the rest.
        dim: axis to cut along.
        name: prefix of names.

    Returns:
        The parts. Source: Paddle op ``split``.
    """
    check_type(num_or_sections, "num_or_sections", (int, list, tuple), "split")
    check_type(dim, "dim", (int, Variable), "split")
    helper = LayerHelper("split", input=input, name=name)
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {}
    if isinstance(dim, int) and -len(input.shape) <= dim < 0:
        dim += len(input.shape)
    number_or_tensor(dim, "AxisTensor", "axis", inputs, attrs)
    if isinstance(num_or_sections, int):
        check_parts(input, dim, num_or_sections)
        attrs["num"] = count = num_or_sections
    else:
        count = len(num_or_sections)
        slots = ("", "SectionsTensorList")
        numbers_or_tensors(helper, num_or_sections, slots, "sections", inputs, attrs)
    dtype = helper.input_dtype()
    parts = [helper.create_variable_for_type_inference(dtype) for _ in range(count)]
    helper.append_op(type="split", inputs=inputs, outputs={"Out": parts}, attrs=attrs)
    return parts


def _with_x_shape(
    helper: LayerHelper,
    op_type: str,
    x: Variable,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    out: Variable | None = None,
) -> Variable:
    """Add an operator that also outputs XShape, the shape of ``x`` for its gradient."""
    if out is None:
        out = helper.create_variable_for_type_inference(x.dtype)
    x_shape = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op(
        type=op_type,
        inputs={"X": x, **inputs},
        outputs={"Out": out, "XShape": x_shape},
        attrs=attrs,
    )
    return out


def reshape(
    x: Variable,
    shape: Sequence[int | Variable] | Variable,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """The same elements in another shape.

    Args:
        x: any shape.
        shape: the new shape; -1 (once) means the rest, 0 keeps the dimension at this position.
        actual_shape: variable with the shape; takes precedence when the program runs.
        act: activation to apply.
        inplace: write to ``x`` itself.
        name: prefix of names.

    Returns:
        The reshaped variable. Source: Paddle op ``reshape2``.

    Raises:
        AssertionError: there are several -1, other negative numbers, or a 0 beyond the rank.
    """
    check_variable_and_dtype(x, "x", NUMBERS, "reshape")
    check_type(shape, "shape", (list, tuple, Variable), "reshape")
    check_shape(shape, "reshape")
    if not isinstance(shape, Variable):
        _check_shape(shape, len(x.shape))
    check_type(actual_shape, "actual_shape", (Variable, type(None)), "reshape")
    helper = LayerHelper("reshape2", act=act, name=name)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    numbers_or_tensors(helper, shape, ("Shape", "ShapeTensor"), "shape", inputs, attrs)
    if not inputs and actual_shape is not None:
        actual_shape.stop_gradient = True
        inputs["Shape"] = actual_shape
    before = x.spec
    out = _with_x_shape(helper, "reshape2", x, inputs, attrs, out=x if inplace else None)
    if attrs.get("shape") and "Shape" in inputs:
        # Layers that follow size their parameters by what the program says of the result.
        out.set_spec(out.spec.replace(shape=resolved(attrs["shape"], before)))
    return helper.append_activation(out)


def _check_shape(shape: Sequence[Any], rank: int) -> None:
    known = [(i, dim) for i, dim in enumerate(shape) if not isinstance(dim, Variable)]
    if [dim for _, dim in known].count(-1) > 1:
        raise AssertionError(f"shape of reshape is {list(shape)}: only one dimension may be -1")
    for index, dim in known:
        if dim < -1:
            raise AssertionError(f"shape of reshape is {list(shape)}: {dim} cannot be")
        if dim == 0 and index >= rank:
            raise AssertionError(
                f"shape of reshape is {list(shape)}: 0 at {index} copies a dimension, but x has "
                f"{rank}"
            )


def squeeze(input: Variable, axes: list[int], name: str | None = None) -> Variable:
    """Remove dimensions of size 1.

    Args:
        input: any shape.
        axes: dimensions to remove; empty for all of size 1.
        name: prefix of names.

    Returns:
        The squeezed variable. Source: Paddle op ``squeeze2``.
    """
    check_variable_and_dtype(input, "input", (*NUMBERS, "int8"), "squeeze")
    check_type(axes, "axes", list, "squeeze")
    return _with_x_shape(LayerHelper("squeeze", name=name), "squeeze2", input, {}, {"axes": axes})


def unsqueeze(
    input: Variable, axes: int | Sequence[int | Variable] | Variable, name: str | None = None
) -> Variable:
    """Insert dimensions of size 1.

    Args:
        input: any shape.
        axes: positions of the new dimensions in the result.
        name: prefix of names.

    Returns:
        The unsqueezed variable. Source: Paddle op ``unsqueeze2``.
    """
    check_type(axes, "axes", (int, list, tuple, Variable), "unsqueeze")
    helper = LayerHelper("unsqueeze2", name=name)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    wanted = [axes] if isinstance(axes, int) else axes
    numbers_or_tensors(helper, wanted, ("AxesTensor", "AxesTensorList"), "axes", inputs, attrs)
    return _with_x_shape(helper, "unsqueeze2", input, inputs, attrs)


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """Flatten to a matrix: dimensions before ``axis`` become rows, the others columns.

    Args:
        x: any shape.
        axis: between 0 and the number of dimensions.
        name: prefix of names.

    Returns:
        The matrix. Source: Paddle op ``flatten2``.

    Raises:
        ValueError: there is no such axis.
    """
    check_variable_and_dtype(x, "x", (*NO_HALF, "int8"), "flatten")
    if not isinstance(axis, int) or not 0 <= axis <= len(x.shape):
        raise ValueError(f"axis of flatten must be in [0, {len(x.shape)}], but is {axis!r}")
    return _with_x_shape(LayerHelper("flatten", name=name), "flatten2", x, {}, {"axis": axis})


def transpose(x: Variable, perm: list[int], name: str | None = None) -> Variable:
    """Permute dimensions.

    Args:
        x: any shape.
        perm: the source dimension of every dimension of the result.
        name: prefix of names.

    Returns:
        The transposed variable. Source: Paddle op ``transpose2``.

    Raises:
        ValueError: ``perm`` does not name every dimension once.
    """
    check_variable_and_dtype(x, "x", NUMBERS, "transpose")
    check_type(perm, "perm", list, "transpose")
    rank = len(x.shape)
    if sorted(p % rank if -rank <= p < rank else p for p in perm) != list(range(rank)):
        raise ValueError(
            f"perm of transpose must be a permutation of the {rank} dimensions of {x.name}, "
            f"but is {perm}"
        )
    return _with_x_shape(LayerHelper("transpose", name=name), "transpose2", x, {}, {"axis": perm})


def stack(x: Variable | Sequence[Variable], axis: int = 0) -> Variable:
    """Join variables of one shape along a new axis.

    Args:
        x: the variables.
        axis: position of the new axis in the result.

    Returns:
        A tensor with one more dimension, whose size is the number of variables. Source: Paddle op
        ``stack``.
    """
    parts: list[Any] = list(x) if isinstance(x, (list, tuple)) else [x]
    return add_op(
        "stack", {"X": parts}, parts[0].dtype, {"axis": 0 if axis is None else axis}, slot="Y"
    )


def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """Cut into slices of size 1 along an axis, and drop the axis.

    Args:
        x: any shape.
        axis: axis to cut along.
        num: number of slices; None takes the size of the axis, which must be known.

    Returns:
        The slices. Source: Paddle op ``unstack``.

    Raises:
        ValueError: the number of slices is unknown.
    """
    helper = LayerHelper("unstack")
    num = x.shape[axis] if num is None else num
    if num <= 0:
        raise ValueError(f"unstack needs num: dimension {axis} of {x.name} {x.shape} is unknown")
    outs = [helper.create_variable_for_type_inference(x.dtype) for _ in range(num)]
    attrs = {"axis": axis, "num": num}
    helper.append_op(type="unstack", inputs={"X": x}, outputs={"Y": outs}, attrs=attrs)
    return outs


def expand(
    x: Variable, expand_times: Sequence[int | Variable] | Variable, name: str | None = None
) -> Variable:
    """Repeat along every dimension.

    Args:
        x: any shape.
        expand_times: number of repetitions of each dimension.
        name: prefix of names.

    Returns:
        The repeated variable. Source: Paddle op ``expand``.
    """
    check_variable_and_dtype(x, "x", ("bool", *NO_HALF), "expand")
    check_type(expand_times, "expand_times", (list, tuple, Variable), "expand")
    helper = LayerHelper("expand", name=name)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    slots = ("ExpandTimes", "expand_times_tensor")
    check_positive(expand_times, "expand_times", "expand")
    numbers_or_tensors(helper, expand_times, slots, "expand_times", inputs, attrs)
    return add_outputs(helper, inputs, {"Out": x.dtype}, attrs)["Out"]


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """Repeat along every dimension, up to the shape of another variable.

    Args:
        x: a tensor whose dimensions divide those of ``target_tensor``.
        target_tensor: the tensor whose shape is wanted.
        name: prefix of names.

    Returns:
        The repeated variable. Source: Paddle op ``expand_as``.
    """
    check_variable_and_dtype(x, "x", ("bool", *NO_HALF), "expand_as")
    check_variable_and_dtype(target_tensor, "target_tensor", ("bool", *NO_HALF), "expand_as")
    return add_op("expand_as", {"X": x, "target_tensor": target_tensor}, x.dtype, name=name)


def shape(input: Variable) -> Variable:
    """The dimensions, int32 ``(rank,)``. Source: Paddle op ``shape``."""
    check_variable_and_dtype(input, "input", NO_HALF, "shape")
    return add_op("shape", {"Input": input}, "int32")


def size(input: Variable) -> Variable:
    """The number of elements, int64 ``(1,)``. Source: Paddle op ``size``."""
    check_type(input, "input", Variable, "size")
    return add_op("size", {"Input": input}, "int64")


def rank(input: Variable) -> Variable:
    """The number of dimensions, int32 of shape (). Source: Paddle op ``assign_value``."""
    check_type(input, "input", Variable, "rank")
    return assign(np.array(len(input.shape), dtype=np.int32))


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """Reverse the order of elements along some axes.

    Args:
        x: any shape.
        axis: one axis, or several.

    Returns:
        The same shape. Source: Paddle op ``reverse``.
    """
    check_variable_and_dtype(x, "x", (*NO_HALF, "uint8"), "reverse")
    check_type(axis, "axis", (int, tuple, list), "reverse")
    axes = [axis] if isinstance(axis, int) else list(axis)
    return add_op("reverse", {"X": x}, x.dtype, {"axis": axes})


def flip(input: Variable, dims: Sequence[int], name: str | None = None) -> Variable:
    """Reverse the order of elements along some axes.

    Args:
        input: any shape.
        dims: the axes.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``flip``.
    """
    check_variable_and_dtype(input, "input", ("bool", *NUMBERS), "flip")
    check_type(dims, "dims", (list, tuple), "flip")
    if not dims:
        raise AssertionError("flip needs at least one axis")
    return add_op("flip", {"X": input}, input.dtype, {"dims": list(dims)}, name=name)
