"""Layers that order elements, and find the largest ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.checks import NO_HALF, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs, document, number_or_tensor

__all__ = ["argmax", "argmin", "argsort", "topk"]


def topk(input: Variable, k: int | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """The ``k`` greatest elements along the last axis, greatest first.

    Args:
        input: ``(..., n)``.
        k: number of elements to return.
        name: prefix of names.

    Returns:
        Values and int64 positions, both ``(..., k)``. Source: Paddle op ``top_k``.

    Raises:
        EnforceNotMet: ``k`` is below 1, or larger than the last dimension of ``input``.

    See Also:
        :func:`argsort`: all elements in order.
        :func:`argmax`: the place of the largest one.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 4.0, 3.0]], "float32"))
        ...     values, indices = fluid.layers.topk(x, k=2)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[values, indices])
        [array([[4., 3.]], dtype=float32), array([[1, 2]])]
    """
    check_type(input, "input", Variable, "topk")
    helper = LayerHelper("top_k", name=name)
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {}
    number_or_tensor(k, "K", "k", inputs, attrs)
    dtypes = {"Out": input.dtype, "Indices": "int64"}
    made = add_outputs(helper, inputs, dtypes, attrs, stop_gradient=True)
    return made["Out"], made["Indices"]


def _argument_of(op_type: str, name: str) -> Callable[..., Variable]:
    def layer(x: Variable, axis: int = 0) -> Variable:
        check_variable_and_dtype(x, "x", (*NO_HALF, "int16", "uint8"), name)
        return add_op(op_type, {"X": x}, "int64", {"axis": axis}, stop_gradient=True)

    arguments = {
        "x": "numbers, any shape.",
        "axis": "the axis to search along.",
    }
    returns = "int64 of the shape of ``x`` without ``axis``."
    return document(layer, name, op_type, arguments, returns=returns)


argmax = _argument_of("arg_max", "argmax")


argmin = _argument_of("arg_min", "argmin")


def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """Sort along an axis.

    Args:
        input: any shape.
        axis: axis to sort along.
        descending: sort the greatest elements first.
        name: prefix of names.

    Returns:
        The sorted elements and their int64 positions. Source: Paddle op ``argsort``.

    Raises:
        TypeError: ``input`` is no variable of type float32, float64, int32, int64, int16 or uint8.
        EnforceNotMet: ``axis`` is not one of ``input``.

    See Also:
        :func:`topk`: the largest elements with their places.
        :func:`argmax`: the place of the largest one.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([3.0, 1.0, 2.0], "float32"))
        ...     values, indices = fluid.layers.argsort(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[values, indices])
        [array([1., 2., 3.], dtype=float32), array([1, 2, 0])]
    """
    check_variable_and_dtype(input, "input", (*NO_HALF, "int16", "uint8"), "argsort")
    helper = LayerHelper("argsort", name=name)
    dtypes, attrs = (
        {"Out": input.dtype, "Indices": "int64"},
        {"axis": axis, "descending": descending},
    )
    made = add_outputs(helper, {"X": input}, dtypes, attrs, stop_gradient=True)
    return made["Out"], made["Indices"]
