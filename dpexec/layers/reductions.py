"""Sums, means and other reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dpexec.engine.ops  # noqa: F401 - the operators that layers are made from
from dpexec.checks import FLOATS, NO_HALF, SINGLE_DOUBLE, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, document

__all__ = [
    "cumsum",
    "logsumexp",
    "mean",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "sum",
    "sums",
]


def _reduction(op_type: str, dtypes: Sequence[str]) -> Callable[..., Variable]:
    def layer(
        input: Variable,
        dim: int | Sequence[int] | None = None,
        keep_dim: bool = False,
        name: str | None = None,
    ) -> Variable:
        check_variable_and_dtype(input, "input", dtypes, op_type)
        dims = [] if dim is None else list(dim) if isinstance(dim, Iterable) else [dim]
        attrs = {"dim": dims or [0], "keep_dim": keep_dim, "reduce_all": not dims}
        return add_op(op_type, {"X": input}, input.dtype, attrs, name=name)

    arguments = {
        "input": f"{' or '.join(dtypes)}; any shape.",
        "dim": "the dimension or dimensions that are reduced; None for all.",
        "keep_dim": "keep them with size 1.",
        "name": "prefix of names.",
    }
    returns = "The type of ``input``, without the reduced dimensions; ``(1,)`` if none is left."
    return document(layer, op_type, op_type, arguments, returns=returns)


reduce_all = _reduction("reduce_all", ("bool",))
reduce_any = _reduction("reduce_any", ("bool",))
reduce_max = _reduction("reduce_max", NO_HALF)
reduce_mean = _reduction("reduce_mean", NO_HALF)
reduce_min = _reduction("reduce_min", NO_HALF)
reduce_prod = _reduction("reduce_prod", NO_HALF)
reduce_sum = _reduction("reduce_sum", NO_HALF)


def mean(x: Variable, name: str | None = None) -> Variable:
    """The mean of all elements.

    Args:
        x: float16, float32 or float64; any shape.
        name: prefix of names.

    Returns:
        ``(1,)``. Source: Paddle op ``mean``.

    Raises:
        TypeError: ``x`` is no variable of type float16, float32 or float64.

    See Also:
        :func:`reduce_sum`: sums.
        :func:`reduce_mean`: means.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     out = fluid.layers.mean(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([2.5], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", FLOATS, "mean")
    return add_op("mean", {"X": x}, x.dtype, name=name)


def logsumexp(
    x: Variable,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The logarithm of the sum of ``exp(x)``.

    Args:
        x: any shape.
        dim: dimensions to sum over; None for all.
        keepdim: keep the summed dimensions with size 1.
        out: variable that takes the result.
        name: prefix of names.

    Returns:
        The logarithms. Source: Paddle ops ``exp``, ``reduce_sum``, ``log``.

    Raises:
        TypeError: ``x`` is no variable of type float32 or float64.
        EnforceNotMet: ``dim`` is no axis of ``x``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([0.0, 0.0, 0.0], "float32"))
        ...     out = fluid.layers.logsumexp(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([1.0986], dtype=float32)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "logsumexp")
    total = reduce_sum(add_op("exp", {"X": x}, x.dtype), dim, keepdim)
    return add_op("log", {"X": total}, x.dtype, out=out, name=name)


def cumsum(
    x: Variable,
    axis: int | None = None,
    exclusive: bool | None = None,
    reverse: bool | None = None,
) -> Variable:
    """Cumulative sums along an axis.

    Args:
        x: numbers.
        axis: axis to sum along; None for the last.
        exclusive: exclude the element itself from its sum.
        reverse: sum from the end towards the start.

    Returns:
        The same shape. Source: Paddle op ``cumsum``.

    Raises:
        EnforceNotMet: ``axis`` is not one of ``x``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     out = fluid.layers.cumsum(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1., 3., 6.], dtype=float32)]
    """
    check_type(x, "x", Variable, "cumsum")
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    return add_op("cumsum", {"X": x}, x.dtype, attrs)


def sum(x: Variable | Sequence[Variable]) -> Variable:
    """The sum of variables, element by element.

    Args:
        x: variables of one shape and type: float32, float64, int32 or int64.

    Returns:
        The same shape. Source: Paddle op ``sum``.

    Raises:
        ValueError: the inputs have different types, or there are none.
        EnforceNotMet: the inputs have different shapes.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     y = fluid.layers.assign(np.array([3.0, 4.0], "float32"))
        ...     out = fluid.layers.sum([x, y])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([4., 6.], dtype=float32)]
    """
    return _sum("sum", x, None)


def sums(input: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """The sum of variables, element by element.

    Args:
        input: variables of one shape and type: float32, float64, int32 or int64.
        out: variable that takes the result.

    Returns:
        The same shape. Source: Paddle op ``sum``.

    Raises:
        TypeError: ``input`` is no variable of type float32, float64, int32 or int64.
        ValueError: the inputs have different types, or there are none.
        EnforceNotMet: the inputs have different shapes.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     y = fluid.layers.assign(np.array([3.0, 4.0], "float32"))
        ...     out = fluid.layers.sums([x, y])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([4., 6.], dtype=float32)]
    """
    if out is not None:
        check_variable_and_dtype(out, "out", NO_HALF, "sums")
    return _sum("sums", input, out)


def _sum(layer: str, terms: Any, out: Variable | None) -> Variable:
    check_type(terms, "input", (Variable, tuple, list), layer)
    terms = [terms] if isinstance(terms, Variable) else list(terms)
    for term in terms:
        check_variable_and_dtype(term, "input", NO_HALF, layer)
    dtype = LayerHelper("sum", name="sum", input=terms).input_dtype()
    return add_op("sum", {"X": terms}, dtype, out=out)
