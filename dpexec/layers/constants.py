"""Tensors with values that are known when the program is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import (
    FLOATS,
    NO_HALF,
    as_number,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
)
from dpexec.engine.core.dtypes import as_var_type
from dpexec.engine.ir.variable import Variable
from dpexec.framework import device_guard
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import (
    add_op,
    check_positive,
    check_shape,
    check_shape_dtype,
    number_or_tensor,
    numbers_or_tensors,
)

__all__ = [
    "fill_constant",
    "fill_constant_batch_size_like",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]

_FILLABLE = ("bool", *FLOATS, "int32", "int64")


def fill_constant(
    shape: Sequence[int | Variable] | Variable,
    dtype: Any,
    value: float | Variable,
    force_cpu: bool = False,
    out: Variable | None = None,
) -> Variable:
    """A tensor whose elements are all ``value``.

    Args:
        shape: dimensions: numbers, one-element variables, or a variable with all dimensions.
        dtype: element type.
        value: a number, or a one-element variable.
        force_cpu: ignored; accepted for compatibility.
        out: variable that takes the result.

    Returns:
        The tensor; gradients stop at it. Source: Paddle op ``fill_constant``.

    Raises:
        TypeError: ``shape`` is no variable of type int32 or int64.
        ValueError: ``dtype`` is no type of tensors.
        AssertionError: ``shape`` is empty.

    See Also:
        :func:`fill_constant_batch_size_like`: of the batch size of another variable.
        :func:`zeros_like`: zeros of the shape of another variable.
        :func:`create_parameter`: a variable that is trained.
        :func:`create_global_var`: a variable that is kept between runs.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.fill_constant([1, 2], "float32", 0.5)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[0.5, 0.5]], dtype=float32)]
    """
    check_dtype(dtype, "dtype", _FILLABLE, "fill_constant")
    check_type(shape, "shape", (Variable, list, tuple), "fill_constant")
    check_shape_dtype(shape, "fill_constant")
    if out is not None:
        check_variable_and_dtype(out, "out", (convert_dtype(dtype),), "fill_constant")
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"force_cpu": force_cpu, "dtype": as_var_type(dtype)}
    number_or_tensor(value, "ValueTensor", "value", inputs, attrs)
    if not isinstance(value, Variable):
        attrs.update(_written(value, dtype))
    helper = LayerHelper("fill_constant")
    slots = ("ShapeTensor", "ShapeTensorList")
    check_shape(shape, "fill_constant")
    numbers_or_tensors(helper, shape, slots, "shape", inputs, attrs)
    made = helper.create_variable_for_type_inference(dtype) if out is None else out
    helper.append_op(
        type="fill_constant",
        inputs=inputs,
        outputs={"Out": made},
        attrs=attrs,
        stop_gradient=True,
    )
    return made


def _written(value: float, dtype: Any) -> dict[str, Any]:
    """Both forms in which operators store a constant; the text form keeps large integers exact."""
    whole = convert_dtype(dtype) in ("int32", "int64")
    number = as_number(value)
    exact = int(np.asarray(value).item()) if whole else number
    return {"value": number, "str_value": str(exact)}


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """A constant tensor with the batch size of ``input``.

    Args:
        input: the variable whose batch size is used.
        shape: dimensions; the one at ``output_dim_idx`` is replaced by the batch size.
        dtype: element type.
        value: the constant.
        input_dim_idx: which dimension of ``input`` is its batch.
        output_dim_idx: which dimension of the result is the batch.
        force_cpu: ignored; accepted for compatibility.

    Returns:
        The tensor. Source: Paddle op ``fill_constant_batch_size_like``.

    Raises:
        EnforceNotMet: ``input_dim_idx`` or ``output_dim_idx`` lies outside of its shape.

    See Also:
        :func:`fill_constant`: of a given shape.
        :func:`zeros_like`: zeros of the shape of another variable.
        :func:`create_parameter`: a variable that is trained.
        :func:`create_global_var`: a variable that is kept between runs.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.0], [0.0]], "float32"))
        ...     out = fluid.layers.fill_constant_batch_size_like(x, [-1, 2], "int64", 7)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[7, 7],
               [7, 7]])]
    """
    op_type = "fill_constant_batch_size_like"
    attrs = {
        "shape": list(shape),
        "dtype": as_var_type(dtype),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "force_cpu": force_cpu,
        **_written(value, dtype),
    }
    return add_op(op_type, {"Input": input}, dtype, attrs, stop_gradient=True)


def zeros(shape: Any, dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of zeros.

    Args:
        shape: numbers, or one-element variables.
        dtype: bool, float16, float32, float64, int32 or int64.
        force_cpu: ignored; accepted for compatibility.

    Returns:
        A tensor of this shape and type. Source: Paddle op ``fill_constant``.

    Raises:
        ValueError: ``dtype`` is no type of tensors.
        AssertionError: ``shape`` is empty.

    See Also:
        :func:`ones`: ones.
        :func:`fill_constant`: any number.
        :func:`full`: any number, as in other libraries.
        :func:`eye`: ones on the diagonal.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.zeros([1, 2], "int64")
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[0, 0]])]
    """
    check_type(shape, "shape", (list, tuple), "zeros")
    check_dtype(dtype, "dtype", _FILLABLE, "zeros")
    return fill_constant(shape, dtype, 0.0, force_cpu)


def ones(shape: Any, dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of ones.

    Args:
        shape: numbers, or one-element variables.
        dtype: bool, float16, float32, float64, int32 or int64.
        force_cpu: ignored; accepted for compatibility.

    Returns:
        A tensor of this shape and type. Source: Paddle op ``fill_constant``.

    Raises:
        ValueError: ``dtype`` is no type of tensors.
        AssertionError: ``shape`` is empty.

    See Also:
        :func:`zeros`: zeros.
        :func:`fill_constant`: any number.
        :func:`full`: any number, as in other libraries.
        :func:`eye`: ones on the diagonal.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.ones([1, 2], "float32")
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 1.]], dtype=float32)]
    """
    check_type(shape, "shape", (list, tuple), "ones")
    check_dtype(dtype, "dtype", _FILLABLE, "ones")
    check_positive(shape, "shape", "ones")
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Zeros in the shape of ``x``.

    Args:
        x: bool, float32, float64, int32 or int64; any shape.
        out: variable that takes the result.

    Returns:
        The same shape and type, without a gradient. Source: Paddle op ``fill_zeros_like``.

    Raises:
        TypeError: ``x`` or ``out`` is no variable.

    See Also:
        :func:`fill_constant`: of a given shape.
        :func:`fill_constant_batch_size_like`: of the batch size of another variable.
        :func:`create_parameter`: a variable that is trained.
        :func:`create_global_var`: a variable that is kept between runs.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.zeros_like(x)])
        [array([0., 0.], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", ("bool", *NO_HALF), "zeros_like")
    return add_op(
        "fill_zeros_like", {"X": x}, x.dtype, layer="zeros_like", out=out, stop_gradient=True
    )


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Ones in the shape of ``x``.

    Args:
        x: bool, float32, float64, int32 or int64; any shape.
        out: variable that takes the result.

    Returns:
        The same shape and type. Source: Paddle op ``fill_any_like``.

    Raises:
        TypeError: ``x`` or ``out`` is no variable.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([5.0, 6.0], "float32"))
        ...     out = fluid.layers.ones_like(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1., 1.], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", ("bool", *NO_HALF), "ones_like")
    return add_op("fill_any_like", {"X": x}, x.dtype, {"value": 1.0}, layer="ones_like", out=out)


def full_like(
    input: Variable,
    fill_value: float,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A constant in the shape of ``input``.

    Args:
        input: the variable whose shape is used.
        fill_value: the constant.
        out: variable that takes the result.
        dtype: element type; None for that of ``input``.
        device: where to run, recorded as :func:`~dpexec.device_guard` does; None records nothing.
        stop_gradient: whether gradients stop here.
        name: prefix of names.

    Returns:
        The tensor. Source: Paddle op ``fill_any_like``.

    Raises:
        ValueError: ``dtype`` is no type of tensors, or ``device`` neither ``"cpu"`` nor ``"gpu"``.
        EnforceNotMet: ``fill_value`` does not fit into ``dtype``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     out = fluid.layers.full_like(x, 3.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([3., 3.], dtype=float32)]
    """
    check_type(input, "input", Variable, "full_like")
    dtype = input.dtype if dtype is None else dtype
    check_dtype(dtype, "dtype", _FILLABLE, "full_like")
    target = as_var_type(dtype)
    attrs = {"value": as_number(fill_value), "dtype": target}
    with device_guard(device):
        made = add_op(
            "fill_any_like", {"X": input}, target, attrs, layer="full_like", name=name, out=out
        )
    made.stop_gradient = stop_gradient
    return made


def full(
    shape: Sequence[int | Variable] | Variable,
    fill_value: float | Variable,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """A tensor whose elements are all ``fill_value``; see :func:`fill_constant`.

    Args:
        shape: dimensions: numbers, one-element variables, or a variable with all dimensions.
        fill_value: a number, or a one-element variable.
        out: variable that takes the result.
        dtype: element type; None for float32.
        device: where to run, recorded as :func:`~dpexec.device_guard` does; None records nothing.
        stop_gradient: whether gradients stop here.
        name: prefix of names.

    Returns:
        The tensor. Source: Paddle op ``fill_constant``.

    Raises:
        TypeError: ``shape`` is no variable of type int32 or int64.
        ValueError: ``dtype`` is no type of tensors, or ``device`` neither ``"cpu"`` nor ``"gpu"``.
        AssertionError: ``shape`` is empty.

    See Also:
        :func:`zeros`: zeros.
        :func:`ones`: ones.
        :func:`fill_constant`: any number.
        :func:`eye`: ones on the diagonal.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.full([1, 2], 3.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[3., 3.]], dtype=float32)]
    """
    dtype = "float32" if dtype is None else dtype
    check_dtype(dtype, "create data type", _FILLABLE, "full")
    helper = LayerHelper("full", name=name)
    if out is None:
        out = helper.create_variable_for_type_inference(dtype)
    out.stop_gradient = stop_gradient
    with device_guard(device):
        return fill_constant(shape, dtype, fill_value, out=out)
