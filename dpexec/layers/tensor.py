"""Creating variables, parameters and counters; casts and copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import (
    FLOATS,
    as_number,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
)
from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.ir.variable import Parameter, Variable
from dpexec.initializer import Constant, Initializer
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op
from dpexec.param_attr import ParamAttr

__all__ = [
    "assign",
    "autoincreased_step_counter",
    "cast",
    "create_global_var",
    "create_parameter",
    "create_tensor",
]

_FILLABLE = ("bool", *FLOATS, "int32", "int64")
_ANY = (*_FILLABLE, "int8", "int16", "uint8")


# ---- variables without an operator


def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """Create a variable for layers to write to.

    Args:
        dtype: element type.
        name: under which it is fetched and found in the scope; None makes one up.
        persistable: whether the value is kept after a run.

    Returns:
        The variable, which has no shape yet.

    Raises:
        ValueError: ``dtype`` is no type of tensors.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     copy = fluid.layers.create_tensor("float32")
        ...     _ = fluid.layers.assign(np.array([1, 2], "float32"), output=copy)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[copy])
        [array([1., 2.], dtype=float32)]
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
    """Create a parameter that belongs to no layer.

    Args:
        shape: dimensions, all known.
        dtype: element type.
        name: name of the parameter, unless ``attr`` has one.
        attr: attributes of the parameter.
        is_bias: initialise with zero instead of Xavier by default.
        default_initializer: used if ``attr`` has no initializer.

    Returns:
        The parameter.

    Raises:
        TypeError: a size in ``shape`` is no integer, or ``dtype`` holds integers and there is no
            initializer.
        ValueError: ``shape`` is empty or has sizes below 1, or ``dtype`` is no type of tensors.

    See Also:
        :func:`fill_constant`: of a given shape.
        :func:`fill_constant_batch_size_like`: of the batch size of another variable.
        :func:`zeros_like`: zeros of the shape of another variable.
        :func:`create_global_var`: a variable that is kept between runs.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     fluid.layers.create_parameter([4, 3], "float32").shape
        (4, 3)
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
        value: the constant: a number, or an array with one element.
        dtype: element type.
        persistable: whether the value is kept after a run.
        force_cpu: ignored; accepted for compatibility.
        name: under which it is saved and found in the scope; None makes one up.

    Returns:
        The variable.

    Raises:
        TypeError: ``value`` is not one number.
        ValueError: ``dtype`` is no type of tensors.

    See Also:
        :func:`fill_constant`: of a given shape.
        :func:`fill_constant_batch_size_like`: of the batch size of another variable.
        :func:`zeros_like`: zeros of the shape of another variable.
        :func:`create_parameter`: a variable that is trained.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     x = fluid.layers.create_global_var([1], 5.0, "float32", persistable=True)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     exe.run(main, fetch_list=[x + 1.0])
        [array([6.], dtype=float32)]
    """
    check_type(shape, "shape", (list, tuple, np.ndarray), "create_global_var")
    for dim in shape:
        check_type(dim, "item of shape", (int, np.integer), "create_global_var")
    check_dtype(dtype, "dtype", _ANY, "create_global_var")
    helper = LayerHelper("global_var", name=name)
    var = helper.create_global_variable(
        dtype=dtype, shape=shape, persistable=persistable, name=name, stop_gradient=True
    )
    helper.set_variable_initializer(var, Constant(as_number(value), force_cpu))
    return var


def autoincreased_step_counter(
    counter_name: str | None = None, begin: int = 1, step: int = 1
) -> Variable:
    """A persistable int64 counter that grows by ``step`` at the start of every run.

    Args:
        counter_name: name of the counter; calls with the same name share one counter.
        begin: the value in the first run is ``begin - 1 + step``.
        step: increment per run.

    Returns:
        int64 ``(1,)``.

    Raises:
        TypeError: ``counter_name`` is no string.

    Example:
        >>> import dpexec as fluid
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     step = fluid.layers.autoincreased_step_counter()
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     [exe.run(main, fetch_list=[step])[0].item() for _ in (1, 2, 3)]
        [1, 2, 3]
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
            attrs={"step": as_number(step)},
        )
        counter.stop_gradient = True
    return counter


# ---- conversion and copies


def cast(x: Variable, dtype: Any) -> Variable:
    """Convert ``x`` to another type.

    Args:
        x: any shape.
        dtype: element type of the result.

    Returns:
        The same shape. Source: Paddle op ``cast``.

    Raises:
        TypeError: ``x`` is no variable.
        ValueError: ``dtype`` is no type of tensors.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.7, -1.7], "float32"))
        ...     out = fluid.layers.cast(x, "int32")
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([ 1, -1], dtype=int32)]
    """
    check_variable_and_dtype(x, "x", (*_FILLABLE, "uint8"), "cast")
    check_dtype(dtype, "dtype", (*_FILLABLE, "int8", "uint8"), "cast")
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
        TypeError: the input is neither a variable nor an array, or has an unsupported type.
        ValueError: the array has more than 2 ** 20 elements.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[x])
        [array([1., 2.], dtype=float32)]
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
