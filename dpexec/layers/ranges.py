"""Layers that make ranges of numbers and diagonal matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import (
    NO_HALF,
    check_dtype,
    check_type,
)
from dpexec.engine.core.dtypes import as_var_type
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import (
    add_op,
)
from dpexec.layers.constants import fill_constant
from dpexec.layers.tensor import assign, cast

__all__ = ["arange", "diag", "eye", "linspace", "range"]


def range(start: Any, end: Any, step: Any, dtype: Any) -> Variable:
    """Numbers from ``start`` up to, but not including, ``end``.

    Args:
        start: a number, or a one-element variable.
        end: likewise.
        step: likewise.
        dtype: element type.

    Returns:
        A vector. Source: Paddle op ``range``.

    Raises:
        ValueError: ``dtype`` is no type of tensors.
        EnforceNotMet: a variable has more than one element, or another type than ``dtype``.

    See Also:
        :func:`linspace`: by number of elements.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.range(0, 6, 2, "int64")
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0, 2, 4])]
    """
    check_dtype(dtype, "dtype", NO_HALF, "range")
    inputs = {
        slot: _as_scalar(value, slot.lower(), dtype, "range")
        for slot, value in (("Start", start), ("End", end), ("Step", step))
    }
    return add_op("range", inputs, dtype, stop_gradient=True)


def linspace(start: Any, stop: Any, num: Any, dtype: Any) -> Variable:
    """``num`` evenly spaced numbers from ``start`` to ``stop``, both included.

    Args:
        start: a number, or a one-element variable.
        stop: likewise.
        num: likewise, int32.
        dtype: float32 or float64.

    Returns:
        ``(num,)``. Source: Paddle op ``linspace``.

    Raises:
        ValueError: ``dtype`` is no type of tensors.
        EnforceNotMet: a variable has more than one element.

    See Also:
        :func:`range`: by step.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.linspace(0, 1, 3, "float32")
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0. , 0.5, 1. ], dtype=float32)]
    """
    inputs = {
        "Start": _as_scalar(start, "start", dtype, "linspace"),
        "Stop": _as_scalar(stop, "stop", dtype, "linspace"),
        "Num": _as_scalar(num, "num", "int32", "linspace"),
    }
    return add_op("linspace", inputs, dtype)


def _as_scalar(value: Any, name: str, dtype: Any, layer: str) -> Variable:
    check_type(value, name, (float, int, Variable), layer)
    if not isinstance(value, Variable):
        return fill_constant([1], dtype, value)
    return value if value.dtype == as_var_type(dtype) else cast(value, dtype)


def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Sequence[int] | None = None,
    dtype: Any = "float32",
) -> Variable:
    """A matrix with ones on the diagonal.

    Args:
        num_rows: number of rows.
        num_columns: number of columns; None for ``num_rows``.
        batch_shape: leading dimensions, over which the matrix is repeated.
        dtype: element type.

    Returns:
        ``batch_shape + (num_rows, num_columns)``. Source: Paddle op ``eye``.

    Raises:
        TypeError: a size is not an integer, or is negative.

    See Also:
        :func:`zeros`: zeros.
        :func:`ones`: ones.
        :func:`fill_constant`: any number.
        :func:`full`: any number, as in other libraries.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     out = fluid.layers.eye(2, num_columns=3)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 0., 0.],
               [0., 1., 0.]], dtype=float32)]
    """
    columns = num_rows if num_columns is None else num_columns
    for name, number in (("num_rows", num_rows), ("num_columns", columns)):
        if not isinstance(number, int) or number < 0:
            raise TypeError(f"{name} of eye must be an integer of at least 0, not {number!r}")
    attrs = {"num_rows": num_rows, "num_columns": columns, "dtype": as_var_type(dtype)}
    out = add_op("eye", {}, dtype, attrs, stop_gradient=True)
    if batch_shape is None:
        return out
    check_type(batch_shape, "batch_shape", list, "eye")
    for number in reversed(batch_shape):
        if not isinstance(number, int) or number <= 0:
            raise TypeError(f"batch_shape of eye must hold positive integers, not {number!r}")
        out = add_op("stack", {"X": [out] * number}, dtype, {"axis": 0}, slot="Y")
    return out


def diag(diagonal: Variable | np.ndarray[Any, Any]) -> Variable:
    """A square matrix of zeros with a vector on its diagonal.

    Args:
        diagonal: a variable or an array of shape ``(n,)``.

    Returns:
        ``(n, n)``. Source: Paddle op ``diag``.

    Raises:
        TypeError: ``diagonal`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: ``diagonal`` is no vector.

    See Also:
        :func:`tril`: the lower triangle.
        :func:`triu`: the upper triangle.
        :func:`diag_embed`: a diagonal for each row.
        :func:`trace`: sums of diagonals.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     out = fluid.layers.diag(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 0.],
               [0., 2.]], dtype=float32)]
    """
    check_type(diagonal, "diagonal", (Variable, np.ndarray), "diag")
    check_dtype(diagonal.dtype, "diagonal", NO_HALF, "diag")
    vector = diagonal if isinstance(diagonal, Variable) else assign(diagonal)
    return add_op("diag", {"Diagonal": vector}, vector.dtype, stop_gradient=True)


def arange(
    start: Any, end: Any, step: Any = 1, dtype: Any = None, name: str | None = None
) -> Variable:
    """Numbers from ``start`` in steps of ``step``, up to, but not including, ``end``.

    Args:
        start: a number, or a one-element variable.
        end: likewise.
        step: likewise.
        dtype: element type; None for float32.
        name: prefix of names.

    Returns:
        ``(ceil((end - start) / step),)``; gradients stop at it. Source: Paddle op ``range``.

    Raises:
        EnforceNotMet: a variable has more than one element, or another type than ``start``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.arange(0, 3)])
        [array([0., 1., 2.], dtype=float32)]
    """
    dtype = "float32" if dtype is None else dtype
    check_dtype(dtype, "create data type", NO_HALF, "range")
    bounds = [v if isinstance(v, Variable) else fill_constant([1], dtype, v)
              for v in (start, end, step)]  # fmt: skip
    inputs = dict(zip(("Start", "End", "Step"), bounds, strict=True))
    return add_op("range", inputs, bounds[0].dtype, name=name, stop_gradient=True)
