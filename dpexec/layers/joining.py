"""Layers that join, divide and repeat tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import NO_HALF, NUMBERS, check_type, check_variable_and_dtype
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import (
    add_op,
    add_outputs,
    check_parts,
    check_positive,
    number_or_tensor,
    numbers_or_tensors,
)

__all__ = ["concat", "expand", "expand_as", "split", "stack", "unstack"]


def concat(
    input: Sequence[Variable] | Variable, axis: int | Variable = 0, name: str | None = None
) -> Variable:
    """Join variables along an axis.

    Args:
        input: variables of one data type that agree in all dimensions but ``axis``; or one array
            of variables, whose entries are joined.
        axis: axis to join along; a number, or a one-element int32 variable.
        name: prefix of names.

    Returns:
        Their shape, with the sum of their sizes along ``axis``. Source: Paddle op ``concat``.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32, float64, int32 or int64.
        ValueError: the inputs have different types, there are none, or an array is one of several.
        EnforceNotMet: ``axis`` is not one of the inputs, or they differ in another dimension.

    See Also:
        :func:`stack`: joins along a new axis.
        :func:`split`: the reverse of concat.
        :func:`unstack`: the reverse of stack.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0], [2.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[3.0], [4.0]], "float32"))
        ...     out = fluid.layers.concat([x, y], axis=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 3.],
               [2., 4.]], dtype=float32)]
    """
    parts = list(input) if isinstance(input, (list, tuple)) else [input]
    for number, part in enumerate(parts):
        check_variable_and_dtype(part, f"input[{number}]", NUMBERS, "concat")
    check_type(axis, "axis", (int, Variable), "concat")
    helper = LayerHelper("concat", input=parts, name=name)
    if _is_array(parts, "concat"):
        check_type(axis, "axis", int, "concat of an array")
        return _joined_array(helper, parts[0], axis, use_stack=False)
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

    Raises:
        AssertionError: ``num_or_sections`` is below 2, or does not divide the dimension.
        EnforceNotMet: ``dim`` is no axis of ``input``.

    See Also:
        :func:`concat`: the reverse.
        :func:`unstack`: along an axis that goes away.
        :func:`slice`: one part.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0, 3.0]], "float32"))
        ...     out = fluid.layers.split(x, num_or_sections=[1, -1], dim=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=list(out))
        [array([[1.]], dtype=float32), array([[2., 3.]], dtype=float32)]
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


def stack(x: Variable | Sequence[Variable], axis: int = 0) -> Variable:
    """Join variables of one shape along a new axis.

    Args:
        x: the variables; or one array of variables, whose entries are stacked.
        axis: position of the new axis in the result.

    Returns:
        A tensor with one more dimension, whose size is the number of variables. Source: Paddle op
        ``stack``.

    Raises:
        ValueError: an array is one of several inputs.
        EnforceNotMet: the shapes differ, or ``axis`` is none of the result.

    See Also:
        :func:`concat`: joins along an axis that is there.
        :func:`split`: the reverse of concat.
        :func:`unstack`: the reverse of stack.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     y = fluid.layers.assign(np.array([3.0, 4.0], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.stack([x, y])])
        [array([[1., 2.],
               [3., 4.]], dtype=float32)]
    """
    parts: list[Any] = list(x) if isinstance(x, (list, tuple)) else [x]
    place = 0 if axis is None else axis
    if _is_array(parts, "stack"):
        return _joined_array(LayerHelper("stack"), parts[0], place, use_stack=True)
    return add_op("stack", {"X": parts}, parts[0].dtype, {"axis": place}, slot="Y")


def _is_array(parts: Sequence[Any], layer: str) -> bool:
    """Whether the entries of an array are to be joined, and not variables."""
    arrays = [part.name for part in parts if part.type == VarType.LOD_TENSOR_ARRAY]
    if arrays and len(parts) > 1:
        raise ValueError(f"{layer} takes variables or one array of them, but {arrays[0]} is one")
    return bool(arrays)


def _joined_array(helper: LayerHelper, array: Any, axis: Any, use_stack: bool) -> Variable:
    dtypes = {"Out": array.dtype, "OutIndex": "int32"}
    attrs = {"axis": axis, "use_stack": use_stack}
    made = add_outputs(helper, {"X": array}, dtypes, attrs, op_type="tensor_array_to_tensor")
    return made["Out"]


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

    See Also:
        :func:`concat`: joins along an axis that is there.
        :func:`stack`: joins along a new axis.
        :func:`split`: the reverse of concat.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     out = fluid.layers.unstack(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=list(out))
        [array([1., 2.], dtype=float32), array([3., 4.], dtype=float32)]
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

    Raises:
        AssertionError: a number in ``expand_times`` is not positive.
        EnforceNotMet: ``expand_times`` does not have a number for each dimension of ``x``.

    See Also:
        :func:`expand_as`: to the shape of another variable.
        :func:`sequence_expand`: by the sequences of another variable.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     out = fluid.layers.expand(x, expand_times=[2, 1])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 2.],
               [1., 2.]], dtype=float32)]
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

    Raises:
        EnforceNotMet: a dimension of ``target_tensor`` is no multiple of that of ``x``.

    See Also:
        :func:`expand`: repeats by factors.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[0.0, 0.0], [0.0, 0.0]], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.expand_as(x, y)])
        [array([[1., 2.],
               [1., 2.]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", ("bool", *NO_HALF), "expand_as")
    check_variable_and_dtype(target_tensor, "target_tensor", ("bool", *NO_HALF), "expand_as")
    return add_op("expand_as", {"X": x, "target_tensor": target_tensor}, x.dtype, name=name)
