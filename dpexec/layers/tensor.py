"""Layers that make, copy and convert tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import FLOATS, check_dtype, check_type, check_variable_and_dtype, convert_dtype
from dpexec.core.dtypes import VarType, as_var_type
from dpexec.initializer import Constant, Initializer
from dpexec.ir.variable import Parameter, Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, number_or_tensor, numbers_or_tensors
from dpexec.param_attr import ParamAttr

__all__ = [
    "assign",
    "autoincreased_step_counter",
    "cast",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "fill_constant",
    "fill_constant_batch_size_like",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "range",
    "zeros",
    "zeros_like",
]

_NO_HALF = ("float32", "float64", "int32", "int64")
_FILLABLE = ("bool", *FLOATS, "int32", "int64")
_ANY = (*_FILLABLE, "int8", "int16", "uint8")


# ---- variables without an operator


def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """A variable for layers that take one to write to.

    Args:
        dtype: element type.
        name: its name.
        persistable: whether its value outlives a run.
    """
    check_dtype(dtype, "dtype", _ANY, "create_tensor")
    helper = LayerHelper("create_tensor", name=name)
    return helper.create_variable(name=helper.name, dtype=dtype, persistable=persistable)


def create_parameter(
    shape: Sequence[int],
    dtype: Any,
    name: str | None = None,
    attr: ParamAttr | None = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Parameter:
    """A parameter by itself.

    Args:
        shape: dimensions, all known.
        dtype: element type.
        name: its name, unless ``attr`` has one.
        attr: its attributes.
        is_bias: zero by default instead of Xavier.
        default_initializer: used where ``attr`` has none.
    """
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_parameter")
    for dim in shape:
        check_type(dim, "item of shape", (int, np.integer), "create_parameter")
    check_dtype(dtype, "dtype", _ANY, "create_parameter")
    check_type(attr, "attr", (type(None), ParamAttr), "create_parameter")
    kinds = (type(None), Initializer)
    check_type(default_initializer, "default_initializer", kinds, "create_parameter")
    helper = LayerHelper("create_parameter", name=name)
    attr = ParamAttr(name=name) if attr is None else attr
    parameter: Parameter = helper.create_parameter(
        attr, [int(dim) for dim in shape], convert_dtype(dtype), is_bias, default_initializer
    )
    return parameter


def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """A variable of the global block that the startup program fills with a constant.

    Args:
        shape: dimensions, all known.
        value: the constant.
        dtype: element type.
        persistable: whether its value outlives a run.
        force_cpu: accepted for fluid's sake.
        name: its name.
    """
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_global_var")
    for dim in shape:
        check_type(dim, "item of shape", (int, np.integer), "create_global_var")
    check_dtype(dtype, "dtype", _ANY, "create_global_var")
    helper = LayerHelper("global_var", name=name)
    var = helper.create_global_variable(
        dtype=dtype, shape=shape, persistable=persistable, name=name, stop_gradient=True
    )
    helper.set_variable_initializer(var, Constant(float(value), force_cpu))
    return var


def autoincreased_step_counter(
    counter_name: str | None = None, begin: int = 1, step: int = 1
) -> Variable:
    """A persistable int64 counter that grows by ``step`` at the start of every run.

    Args:
        counter_name: its name; counters of one name are one counter.
        begin: its value in the first run.
        step: what is added.
    """
    helper = LayerHelper("global_step_counter")
    counter, is_new = helper.create_or_get_global_variable(
        counter_name or "@STEP_COUNTER@", dtype="int64", shape=[1], persistable=True
    )
    if is_new:
        helper.set_variable_initializer(counter, Constant(begin - 1, force_cpu=True))
        helper.main_program.global_block()._prepend_op(
            type="increment",
            inputs={"X": counter},
            outputs={"Out": counter},
            attrs={"step": float(step)},
        )
        counter.stop_gradient = True
    return counter


# ---- constants


def fill_constant(
    shape: Sequence[int | Variable] | Variable,
    dtype: Any,
    value: float | Variable,
    force_cpu: bool = False,
    out: Variable | None = None,
) -> Variable:
    """A tensor whose elements are all ``value``.

    Args:
        shape: dimensions; numbers, variables with one, or a variable with all.
        dtype: element type.
        value: a number, or a variable with one.
        force_cpu: accepted for fluid's sake.
        out: variable that takes the result.

    Returns:
        The tensor; gradients stop at it. Source: Paddle op ``fill_constant``.
    """
    check_dtype(dtype, "dtype", _FILLABLE, "fill_constant")
    check_type(shape, "shape", (Variable, list, tuple), "fill_constant")
    if out is not None:
        check_variable_and_dtype(out, "out", (convert_dtype(dtype),), "fill_constant")
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"force_cpu": force_cpu, "dtype": as_var_type(dtype)}
    number_or_tensor(value, "ValueTensor", "value", inputs, attrs)
    if not isinstance(value, Variable):
        attrs.update(_written(value, dtype))
    helper = LayerHelper("fill_constant")
    slots = ("ShapeTensor", "ShapeTensorList")
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
    """The two ways in which operators hold a constant: the text keeps large integers exact."""
    whole = convert_dtype(dtype) in ("int32", "int64")
    return {"value": float(value), "str_value": str(int(value) if whole else float(value))}


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
        input: has the batch size.
        shape: dimensions; the one at ``output_dim_idx`` is replaced.
        dtype: element type.
        value: the constant.
        input_dim_idx: which dimension of ``input`` is its batch.
        output_dim_idx: which dimension of the result is.
        force_cpu: accepted for fluid's sake.

    Returns:
        The tensor. Source: Paddle op ``fill_constant_batch_size_like``.
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
    """A tensor of zeros; arguments as for :func:`fill_constant`."""
    check_type(shape, "shape", (list, tuple), "zeros")
    check_dtype(dtype, "dtype", _FILLABLE, "zeros")
    return fill_constant(shape, dtype, 0.0, force_cpu)


def ones(shape: Any, dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of ones; arguments as for :func:`fill_constant`."""
    check_type(shape, "shape", (list, tuple), "ones")
    check_dtype(dtype, "dtype", _FILLABLE, "ones")
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Zeros in the shape of ``x``. Source: Paddle op ``fill_zeros_like``."""
    check_variable_and_dtype(x, "x", ("bool", *_NO_HALF), "zeros_like")
    return add_op(
        "fill_zeros_like", {"X": x}, x.dtype, layer="zeros_like", out=out, stop_gradient=True
    )


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Ones in the shape of ``x``. Source: Paddle op ``fill_any_like``."""
    check_variable_and_dtype(x, "x", ("bool", *_NO_HALF), "ones_like")
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
        input: has the shape.
        fill_value: the constant.
        out: variable that takes the result.
        dtype: element type; None for that of ``input``.
        device: only None: operators run on the device of their replica.
        stop_gradient: whether gradients stop here.
        name: prefix of names.

    Returns:
        The tensor. Source: Paddle op ``fill_any_like``.
    """
    check_type(device, "device", type(None), "full_like")
    target = input.dtype if dtype is None else as_var_type(dtype)
    check_dtype(target, "dtype", _FILLABLE, "full_like")
    attrs = {"value": float(fill_value), "dtype": target}
    made = add_op(
        "fill_any_like", {"X": input}, target, attrs, layer="full_like", name=name, out=out
    )
    made.stop_gradient = stop_gradient
    return made


def range(start: Any, end: Any, step: Any, dtype: Any) -> Variable:
    """Numbers from ``start`` up to but without ``end``.

    Args:
        start: a number, or a variable with one.
        end: likewise.
        step: likewise.
        dtype: element type.

    Returns:
        A vector. Source: Paddle op ``range``.
    """
    check_dtype(dtype, "dtype", _NO_HALF, "range")
    helper = LayerHelper("range")
    inputs = {
        slot: _as_scalar(value, slot.lower(), dtype, "range")
        for slot, value in (("Start", start), ("End", end), ("Step", step))
    }
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(type="range", inputs=inputs, outputs={"Out": out})
    out.stop_gradient = True
    return out


def linspace(start: Any, stop: Any, num: Any, dtype: Any) -> Variable:
    """``num`` evenly spaced numbers from ``start`` to ``stop``, both included.

    Args:
        start: a number, or a variable with one.
        stop: likewise.
        num: likewise, int32.
        dtype: float32 or float64.

    Returns:
        A vector. Source: Paddle op ``linspace``.
    """
    helper = LayerHelper("linspace")
    inputs = {
        "Start": _as_scalar(start, "start", dtype, "linspace"),
        "Stop": _as_scalar(stop, "stop", dtype, "linspace"),
        "Num": _as_scalar(num, "num", "int32", "linspace"),
    }
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(type="linspace", inputs=inputs, outputs={"Out": out})
    return out


def _as_scalar(value: Any, name: str, dtype: Any, layer: str) -> Variable:
    check_type(value, name, (float, int, Variable), layer)
    if not isinstance(value, Variable):
        return fill_constant([1], dtype, value)
    return value if value.dtype == as_var_type(dtype) else cast(value, dtype)


# ---- conversion and copies


def cast(x: Variable, dtype: Any) -> Variable:
    """``x`` as another type.

    Args:
        x: any shape.
        dtype: element type of the result.

    Returns:
        The same shape. Source: Paddle op ``cast``.
    """
    check_variable_and_dtype(x, "x", _ANY, "cast")
    check_dtype(dtype, "dtype", _ANY, "cast")
    target = as_var_type(dtype)
    return add_op("cast", {"X": x}, target, {"in_dtype": x.dtype, "out_dtype": target})


def assign(input: Variable | np.ndarray[Any, Any], output: Variable | None = None) -> Variable:
    """A copy of a variable or an array.

    Args:
        input: a variable; or an array of bool, float32, int32 or int64 that becomes part of the
            program.
        output: variable that takes the copy.

    Returns:
        The copy. Source: Paddle ops ``assign`` and ``assign_value``.

    Raises:
        TypeError: neither a variable nor an array, or of another type.
        ValueError: an array with more than 2 ** 20 elements.
    """
    check_type(input, "input", (Variable, np.ndarray), "assign")
    if isinstance(input, Variable):
        check_dtype(input.dtype, "input", _FILLABLE, "assign")
        return add_op("assign", {"X": input}, input.dtype, out=output)
    dtype = as_var_type(input.dtype)
    fields = {
        VarType.BOOL: "bool_values",
        VarType.FP32: "fp32_values",
        VarType.INT32: "int32_values",
        VarType.INT64: "int64_values",
    }
    if dtype not in fields:
        raise TypeError(
            "assign takes arrays of bool, float32, int32 or int64, "
            f"but received {convert_dtype(dtype)}; convert it with astype"
        )
    if input.size > 1024 * 1024:
        raise ValueError(f"assign takes arrays up to 2**20 elements, this has {input.size}")
    attrs = {"dtype": dtype, "shape": list(input.shape), fields[dtype]: input.ravel().tolist()}
    return add_op("assign_value", {}, dtype, attrs, layer="assign", out=output)
