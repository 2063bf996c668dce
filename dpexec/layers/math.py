"""Matrix products, scaling, clipping and other functions of one tensor."""

from __future__ import annotations

from typing import Any

import dpexec.engine.ops  # noqa: F401 - the operators that layers are made from
from dpexec.checks import (
    FLOATS,
    NO_HALF,
    NUMBERS,
    SINGLE_DOUBLE,
    as_number,
    check_type,
    check_variable_and_dtype,
)
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, number_or_tensor
from dpexec.layers.tensor import assign

__all__ = [
    "clip",
    "clip_by_norm",
    "increment",
    "log1p",
    "pow",
    "scale",
    "selu",
    "sign",
    "softshrink",
    "swish",
]


# ---- functions of one tensor whose arguments differ from the operator's attributes


def clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Limit elements to ``[min, max]``.

    Args:
        x: float16, float32 or float64; any shape; sparse gradients stay sparse.
        min: the least value.
        max: the greatest value.
        name: name of the result (not a prefix).

    Returns:
        The same shape. Source: Paddle op ``clip``.

    Raises:
        TypeError: ``x`` is no variable of type float16, float32 or float64.
        EnforceNotMet: ``min`` is not less than ``max``.

    See Also:
        :func:`clip_by_norm`: limits the length of the whole.
        :func:`l2_normalize`: length 1 along an axis.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-3.0, 0.5, 2.0], "float32"))
        ...     out = fluid.layers.clip(x, min=-1.0, max=1.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([-1. ,  0.5,  1. ], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", FLOATS, "clip")
    return _typed_like(x, "clip", {"min": min, "max": max}, name)


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """Scale ``x`` to an L2 norm of at most ``max_norm``.

    Args:
        x: float32; any shape; sparse gradients stay sparse.
        max_norm: a float.
        name: name of the result (not a prefix).

    Returns:
        The same shape. Source: Paddle op ``clip_by_norm``.

    Raises:
        TypeError: ``max_norm`` is no float.

    See Also:
        :func:`clip`: limits each element.
        :func:`l2_normalize`: length 1 along an axis.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([3.0, 4.0], "float32"))
        ...     out = fluid.layers.clip_by_norm(x, max_norm=1.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0.6, 0.8], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", ("float32",), "clip_by_norm")
    check_type(max_norm, "max_norm", float, "clip_by_norm")
    return _typed_like(x, "clip_by_norm", {"max_norm": max_norm}, name)


def _typed_like(x: Variable, op_type: str, attrs: dict[str, Any], name: str | None) -> Variable:
    """Add an operator that keeps sparse gradients sparse; ``name`` is its output's full name."""
    helper = LayerHelper(op_type, name=name)
    if name is None:
        out = helper.create_variable_for_type_inference(x.dtype)
    else:
        out = helper.create_variable(name=name, dtype=x.dtype)
    out.type = x.type
    helper.append_op(type=op_type, inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


def scale(
    x: Variable,
    scale: float | Variable = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """``scale * x + bias``.

    Args:
        x: numbers.
        scale: a number, or a one-element variable.
        bias: a number.
        bias_after_scale: False for ``scale * (x + bias)``.
        act: activation to apply.
        name: prefix of names.

    Returns:
        The same shape and type. Source: Paddle op ``scale``.

    Raises:
        TypeError: ``x`` is no variable of type float16, float32, float64, int32, int64, int8, int16
            or uint8.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     out = fluid.layers.scale(x, scale=2.0, bias=1.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([3., 5.], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", (*NUMBERS, "int8", "int16", "uint8"), "scale")
    inputs: dict[str, Any] = {"X": x}
    attrs = {"bias": as_number(bias), "bias_after_scale": bias_after_scale}
    if isinstance(scale, Variable):
        inputs["ScaleTensor"] = scale
    else:
        attrs["scale"] = as_number(scale)
    return add_op("scale", inputs, x.dtype, attrs, name=name, act=act)


def pow(x: Variable, factor: float | Variable = 1.0, name: str | None = None) -> Variable:
    """``x ** factor``.

    Args:
        x: numbers.
        factor: a number, or a one-element float32 variable.
        name: prefix of names.

    Returns:
        The same shape and type. Source: Paddle op ``pow``.

    Raises:
        TypeError: ``x`` is no variable of type float32, float64, int32 or int64; ``factor`` is no
            variable of type float32.
        EnforceNotMet: a variable as ``factor`` has more than one element.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     out = fluid.layers.pow(x, 3.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1., 8.], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", NO_HALF, "pow")
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    if isinstance(factor, Variable):
        check_variable_and_dtype(factor, "factor", ("float32",), "pow")
    number_or_tensor(factor, "FactorTensor", "factor", inputs, attrs)
    return add_op("pow", inputs, x.dtype, attrs, name=name)


def sign(x: Any) -> Variable:
    """-1, 0 or 1, element by element.

    Args:
        x: a variable or an array of float16, float32 or float64; any shape.

    Returns:
        The same shape and type. Source: Paddle op ``sign``.

    Raises:
        TypeError: ``x`` is neither a variable of floats nor an array.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.sign(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([-1.,  0.,  1.], dtype=float32)]
    """
    x = x if isinstance(x, Variable) else assign(x)
    check_variable_and_dtype(x, "x", FLOATS, "sign")
    return add_op("sign", {"X": x}, x.dtype)


def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``log(1 + x)``.

    Args:
        x: float32 or float64; any shape.
        out: variable that takes the result.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``log1p``.

    Raises:
        TypeError: ``x`` is no variable of type float32 or float64.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 4.0], "float32"))
        ...     out = fluid.layers.log1p(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.6931, 1.6094], dtype=float32)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "log1p")
    return add_op("log1p", {"X": x}, x.dtype, out=out, name=name)


def selu(
    x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """``scale * x`` where positive, else ``scale * alpha * (exp(x) - 1)``.

    Args:
        x: any shape.
        scale: None for the value that keeps variances at 1.
        alpha: None for the value that keeps variances at 1.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``selu``; Klambauer and others, 2017.

    Raises:
        TypeError: ``x`` is no variable of type float32 or float64.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.selu(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-1.5202,  0.    ,  1.0507], dtype=float32)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "selu")
    return add_op("selu", {"X": x}, x.dtype, {"scale": scale, "alpha": alpha}, name=name)


def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """Move elements by ``alpha`` towards 0, but not past it.

    Args:
        x: float16, float32 or float64; any shape.
        alpha: the distance; None for 0.5.

    Returns:
        The same shape. Source: Paddle op ``softshrink``.

    Raises:
        TypeError: ``x`` is no variable of type float16, float32 or float64.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.softshrink(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([-1.5,  0. ,  0.5], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", FLOATS, "softshrink")
    return add_op("softshrink", {"X": x}, x.dtype, {"lambda": alpha})


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """``x * sigmoid(x)``, elementwise.

    Args:
        x: float16, float32 or float64; any shape.
        beta: ignored, other values than 1 with a warning: the layer of fluid 1.8 passes it under a
            name that its operator does not know, so that every program computes with 1.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``swish``; Ramachandran, Zoph, Le 2017.

    Raises:
        TypeError: ``x`` is no variable of type float16, float32 or float64.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.swish(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.2384,  0.    ,  0.7311], dtype=float32)
    """
    check_variable_and_dtype(x, "x", FLOATS, "swish")
    if beta != 1.0:
        warn(
            f"swish computes x * sigmoid(x), as Paddle 1.8.5 does, whatever beta is; write "
            f"x * fluid.layers.sigmoid({beta} * x) for the other function"
        )
    return add_op("swish", {"X": x}, x.dtype, name=name)


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """``x + value``.

    Args:
        x: one number, shape ``(1,)``.
        value: number to add.
        in_place: write the result to ``x`` itself.

    Returns:
        The same shape and type. Source: Paddle op ``increment``.

    Raises:
        TypeError: ``x`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: ``x`` has more than one element.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0], "float32"))
        ...     out = fluid.layers.increment(x, value=2.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([3.], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", NO_HALF, "increment")
    out = x if in_place else None
    return add_op("increment", {"X": x}, x.dtype, {"step": as_number(value)}, out=out)


# ---- functions of several tensors
