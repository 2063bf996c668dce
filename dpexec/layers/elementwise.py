"""Elementwise arithmetic of tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import dpexec.engine.ops  # noqa: F401 - the operators that layers are made from
from dpexec.checks import (
    NO_HALF,
    NUMBERS,
    SINGLE_DOUBLE,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
)
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op, document, number_or_tensor
from dpexec.layers.tensor import assign

__all__ = [
    "addcmul",
    "clamp",
    "elementwise_add",
    "elementwise_div",
    "elementwise_floordiv",
    "elementwise_max",
    "elementwise_min",
    "elementwise_mod",
    "elementwise_mul",
    "elementwise_pow",
    "elementwise_sub",
    "mish",
]


def _elementwise(op_type: str) -> Callable[..., Variable]:
    def layer(
        x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
    ) -> Variable:
        check_variable_and_dtype(x, "x", NUMBERS, op_type)
        check_variable_and_dtype(y, "y", NUMBERS, op_type)
        return add_op(op_type, {"X": x, "Y": y}, x.dtype, {"axis": axis}, name=name, act=act)

    arguments = {
        "x": "numbers, any shape.",
        "y": "numbers of the type of ``x``; its shape is that of ``x``, or a part of it.",
        "axis": "where the shape of ``y`` begins in that of ``x``; -1: they end together.",
        "act": 'activation to apply, such as ``"relu"``.',
        "name": "prefix of names.",
    }
    returns = "The shape and type of ``x``."
    return document(layer, op_type, op_type, arguments, returns=returns)


elementwise_add = _elementwise("elementwise_add")
elementwise_div = _elementwise("elementwise_div")
elementwise_floordiv = _elementwise("elementwise_floordiv")
elementwise_max = _elementwise("elementwise_max")
elementwise_min = _elementwise("elementwise_min")
elementwise_mod = _elementwise("elementwise_mod")
elementwise_mul = _elementwise("elementwise_mul")
elementwise_pow = _elementwise("elementwise_pow")
elementwise_sub = _elementwise("elementwise_sub")


def addcmul(
    input: Variable,
    tensor1: Variable,
    tensor2: Variable,
    value: float = 1.0,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """``input + value * tensor1 * tensor2``.

    Args:
        input: numbers, any shape.
        tensor1: numbers of the same type; its shape is that of ``input``, or a part of it.
        tensor2: likewise, for ``tensor1``.
        value: a factor; an int for integers.
        out: variable that takes the result.
        name: ignored; accepted for compatibility.

    Returns:
        Like ``input``. Source: Paddle ops ``elementwise_mul``, ``scale``, ``elementwise_add``.

    Raises:
        TypeError: a factor is no variable, or ``value`` is no float (no int for integers).
        EnforceNotMet: the shapes cannot be broadcast together.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0], "float32"))
        ...     z = fluid.layers.assign(np.array([3.0], "float32"))
        ...     out = fluid.layers.addcmul(x, y, z, value=0.5)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([4.], dtype=float32)]
    """
    for argument, var in (("input", input), ("tensor1", tensor1), ("tensor2", tensor2)):
        check_variable_and_dtype(var, argument, NO_HALF, "addcmul")
    whole = convert_dtype(input.dtype) in ("int32", "int64")
    check_type(value, "value", int if whole else float, "addcmul")
    total = elementwise_add(input, elementwise_mul(tensor1, tensor2) * value)
    return total if out is None else assign(total, out)


def clamp(
    input: Variable,
    min: float | Variable | None = None,
    max: float | Variable | None = None,
    output: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Limit elements to ``[min, max]``.

    Args:
        input: numbers.
        min: a number, or a one-element variable; None for 2.2e-308, as in fluid, which
            means 0.
        max: a number, or a one-element variable; None for no limit.
        output: variable that takes the result.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``clip``.

    Raises:
        AssertionError: neither ``min`` nor ``max`` is given.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-1.0, 1.0, 3.0], "float32"))
        ...     out = fluid.layers.clamp(x, min=0.0, max=2.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0., 1., 2.], dtype=float32)]
    """
    if min is None and max is None:
        raise AssertionError("clamp needs min or max")
    kinds = (float, Variable, type(None))
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"min": sys.float_info.min, "max": sys.float_info.max}
    for name_, slot, limit in (("min", "Min", min), ("max", "Max", max)):
        check_type(limit, name_, kinds, "clamp")
        if limit is not None:
            number_or_tensor(limit, slot, name_, inputs, attrs)
    return add_op("clip", inputs, input.dtype, attrs, layer="clamp", name=name, out=output)


def mish(x: Variable, threshold: float = 20, name: str | None = None) -> Variable:
    """``x * tanh(log(1 + exp(x)))``.

    Args:
        x: float32 or float64.
        threshold: above it ``log(1 + exp(x))`` is approximated by ``x``.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``mish``; Misra, 2019.

    Raises:
        TypeError: ``x`` is no variable of type float32 or float64, or ``threshold`` no number.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.mish(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.2525,  0.    ,  0.8651], dtype=float32)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "mish")
    check_type(threshold, "threshold", (float, int), "mish")
    if threshold <= 0:
        raise AssertionError(f"threshold of mish must be positive, but is {threshold}")
    return add_op("mish", {"X": x}, x.dtype, {"threshold": float(threshold)}, name=name)
