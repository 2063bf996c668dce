"""Comparisons of tensors, and logic with the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dpexec.engine.ops  # noqa: F401 - the operators that layers are made from
from dpexec.checks import NO_HALF, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op, document

__all__ = [
    "allclose",
    "elementwise_equal",
    "equal",
    "greater_equal",
    "greater_than",
    "has_inf",
    "has_nan",
    "is_empty",
    "isfinite",
    "less_equal",
    "less_than",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
]


def _comparison(op_type: str) -> Callable[..., Variable]:
    def layer(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
        return _compare(op_type, x, y, cond)

    arguments = {
        "x": "numbers, any shape.",
        "y": "numbers; its shape is that of ``x``, or a part of it.",
        "cond": "bool variable that takes the result.",
    }
    returns = "bool of the shape of ``x``."
    return document(layer, op_type, op_type, arguments, returns=returns)


def _compare(
    op_type: str, x: Variable, y: Variable, cond: Variable | None, **attrs: Any
) -> Variable:
    check_variable_and_dtype(x, "x", NO_HALF, op_type)
    check_variable_and_dtype(y, "y", NO_HALF, op_type)
    check_type(cond, "cond", (Variable, type(None)), op_type)
    inputs = {"X": x, "Y": y}
    return add_op(op_type, inputs, "bool", attrs, out=cond, stop_gradient=cond is None)


equal = _comparison("equal")


greater_equal = _comparison("greater_equal")


greater_than = _comparison("greater_than")


less_equal = _comparison("less_equal")


not_equal = _comparison("not_equal")


def less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
) -> Variable:
    """Whether ``x < y``, element by element.

    Args:
        x, y: numbers; the shape of ``y`` must be broadcastable to that of ``x``.
        force_cpu: ignored; the result stays on the device that the program runs on.
        cond: variable that takes the result.

    Returns:
        bool. Source: Paddle op ``less_than``.

    Raises:
        TypeError: ``x``, ``y`` or ``cond`` is no variable, or ``force_cpu`` no bool.
        EnforceNotMet: the types differ, or the shapes cannot be broadcast together.

    See Also:
        :func:`equal`: element by element.
        :func:`logical_and`: combines the results.
        :func:`where`: the places where a condition holds.
        :func:`cond`: runs one of two branches.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 2.0, 2.0], "float32"))
        ...     out = fluid.layers.less_than(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([ True, False, False])]
    """
    check_type(force_cpu, "force_cpu", (bool, type(None)), "less_than")
    return _compare("less_than", x, y, cond, force_cpu=force_cpu)


def _logical(op_type: str) -> Callable[..., Variable]:
    def layer(
        x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
    ) -> Variable:
        check_variable_and_dtype(x, "x", ("bool",), op_type)
        check_variable_and_dtype(y, "y", ("bool",), op_type)
        check_type(out, "out", (Variable, type(None)), op_type)
        return add_op(op_type, {"X": x, "Y": y}, "bool", out=out, name=name)

    arguments = {
        "x": "bool, any shape.",
        "y": "bool; its shape is that of ``x``, or a part of it.",
        "out": "bool variable that takes the result.",
        "name": "prefix of names.",
    }
    returns = "bool of the shape of ``x``."
    return document(layer, op_type, op_type, arguments, returns=returns)


logical_and = _logical("logical_and")


logical_or = _logical("logical_or")


logical_xor = _logical("logical_xor")


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """``not x``, element by element.

    Args:
        x: bool, any shape.
        out: variable that takes the result.
        name: prefix of names.

    Returns:
        bool of the same shape. Source: Paddle op ``logical_not``.

    Raises:
        TypeError: ``x`` is no variable of type bool, or ``out`` is no variable.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     out = fluid.layers.logical_not(x > 1.5)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([ True, False])]
    """
    check_variable_and_dtype(x, "x", ("bool",), "logical_not")
    check_type(out, "out", (Variable, type(None)), "logical_not")
    return add_op("logical_not", {"X": x}, "bool", out=out, name=name)


def _finiteness(op_type: str, name: str) -> Callable[..., Variable]:
    def layer(x: Variable) -> Variable:
        check_variable_and_dtype(x, "x", NO_HALF, name)
        dtype = "bool" if op_type == "isfinite" else x.dtype
        return add_op(op_type, {"X": x}, dtype)

    returns = "``(1,)``; bool when fetched."
    return document(layer, name, op_type, {"x": "numbers, any shape."}, returns=returns)


has_inf = _finiteness("isinf", "has_inf")


has_nan = _finiteness("isnan", "has_nan")


isfinite = _finiteness("isfinite", "isfinite")


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Whether ``x`` has no elements.

    Args:
        x: a tensor of any type and shape.
        cond: bool variable that takes the result; None makes one.

    Returns:
        bool ``(1,)``. Source: Paddle op ``is_empty``.

    Raises:
        TypeError: ``x`` or ``cond`` is no variable.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     empty = fluid.layers.is_empty(fluid.layers.zeros([2, 0], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[empty])
        [array([ True])]
    """
    check_variable_and_dtype(x, "x", NO_HALF, "is_empty")
    if cond is not None:
        check_variable_and_dtype(cond, "cond", ("bool",), "is_empty")
    return add_op("is_empty", {"X": x}, "bool", out=cond, stop_gradient=cond is None)


def allclose(
    input: Variable,
    other: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Whether ``|input - other| <= atol + rtol * |other|`` for all elements.

    Args:
        input, other: float32 or float64, of one shape.
        rtol: tolerance relative to ``other``.
        atol: tolerance.
        equal_nan: whether two NaN are equal.
        name: prefix of names.

    Returns:
        bool ``(1,)``. Source: Paddle op ``allclose``.

    Raises:
        TypeError: ``input`` or ``other`` is no variable, or a tolerance is no float.
        EnforceNotMet: the types or shapes differ, or are not of floats.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     y = fluid.layers.assign(np.array([1.0005, 2.0], "float32"))
        ...     out = fluid.layers.allclose(x, y, rtol=1e-3)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([ True])]
    """
    check_type(rtol, "rtol", float, "allclose")
    check_type(atol, "atol", float, "allclose")
    check_type(equal_nan, "equal_nan", bool, "allclose")
    inputs = {"Input": input, "Other": other}
    attrs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return add_op("allclose", inputs, "bool", attrs, name=name)


def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Whether elements are equal.

    Args:
        x, y: numbers of one data type; the shape of ``y`` is that of ``x``, or a part of it.
        name: prefix of names.

    Returns:
        bool of the shape of ``x``; gradients stop here. Source: Paddle op ``equal``.

    Raises:
        TypeError: ``x`` or ``y`` is no variable.
        EnforceNotMet: the types differ, or the shapes cannot be broadcast together.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 2.0, 2.0], "float32"))
        ...     out = fluid.layers.elementwise_equal(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([False,  True, False])]
    """
    check_type(x, "x", Variable, "elementwise_equal")
    check_type(y, "y", Variable, "elementwise_equal")
    inputs, attrs = {"X": x, "Y": y}, {"force_cpu": False}
    layer = "elementwise_equal"
    return add_op("equal", inputs, "bool", attrs, layer=layer, name=name, stop_gradient=True)
