"""Layers that reverse and shift the elements of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import NO_HALF, NUMBERS, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op
from dpexec.layers.manipulation import reshape

__all__ = ["flip", "reverse", "roll"]


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """Reverse the order of elements along some axes.

    Args:
        x: any shape.
        axis: one axis, or several.

    Returns:
        The same shape. Source: Paddle op ``reverse``.

    Raises:
        TypeError: ``x`` is no variable, or ``axis`` neither a number nor several.
        EnforceNotMet: ``x`` has no such axis.

    See Also:
        :func:`transpose`: another order of axes.
        :func:`flip`: the same, as in other libraries.
        :func:`roll`: shifts elements.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     out = fluid.layers.reverse(x, axis=0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([3., 2., 1.], dtype=float32)]
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

    Raises:
        AssertionError: there are no ``dims``.
        TypeError: ``dims`` is no list or tuple.

    See Also:
        :func:`transpose`: another order of axes.
        :func:`reverse`: another order of elements.
        :func:`roll`: shifts elements.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     out = fluid.layers.flip(x, dims=[0])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([3., 2., 1.], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", ("bool", *NUMBERS), "flip")
    check_type(dims, "dims", (list, tuple), "flip")
    if not dims:
        raise AssertionError("flip needs at least one axis")
    return add_op("flip", {"X": input}, input.dtype, {"dims": list(dims)}, name=name)


def roll(
    input: Variable, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Variable:
    """Shift elements along dimensions; elements shifted beyond the end reappear at the start.

    Args:
        input: any shape.
        shifts: distances, one number per dimension.
        dims: dimensions to shift along; None for the flattened tensor.

    Returns:
        The same shape. Source: Paddle op ``roll``.

    Raises:
        TypeError: ``input`` is no variable.
        EnforceNotMet: ``input`` has no such axis, or there are more or fewer shifts than axes.

    See Also:
        :func:`transpose`: another order of axes.
        :func:`reverse`: another order of elements.
        :func:`flip`: the same, as in other libraries.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     out = fluid.layers.roll(x, shifts=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([3., 1., 2.], dtype=float32)]
    """
    check_type(input, "input", Variable, "roll")
    steps: Any = [shifts] if _is_number(shifts) else shifts
    axes: Any = [dims] if _is_number(dims) else dims
    check_type(steps, "shifts", (list, tuple), "roll")
    check_type(axes, "dims", (list, tuple, type(None)), "roll")
    source = input
    if axes is None:
        source, axes = reshape(input, shape=[-1, 1]), [0]
    attrs = {"dims": list(axes), "shifts": list(steps)}
    out = add_op("roll", {"X": source}, input.dtype, attrs)
    return reshape(out, shape=input.shape, inplace=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
