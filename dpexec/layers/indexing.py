"""Layers that choose elements by their position, or find their positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import INTEGERS, NO_HALF, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs, number_or_tensor, numbers_or_tensors
from dpexec.layers.constants import zeros

__all__ = [
    "gather",
    "gather_nd",
    "one_hot",
    "scatter",
    "scatter_nd",
    "scatter_nd_add",
    "slice",
    "strided_slice",
    "where",
]


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """Rows of ``input`` by index.

    Args:
        input: ``(N, ...)``.
        index: int32 or int64 ``(M,)`` or ``(M, 1)``.
        overwrite: the gradient of repeated rows is the last one's instead of the sum.

    Returns:
        ``(M, ...)``. Source: Paddle op ``gather``.

    Raises:
        EnforceNotMet: ``index`` is no vector of int32 or int64. A row that is not there is refused
            when it runs.

    See Also:
        :func:`gather_nd`: by several indices.
        :func:`index_select`: along any axis.
        :func:`scatter`: the reverse: rows are written.
        :func:`embedding`: rows of a table that is trained.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0], [2.0], [3.0]], "float32"))
        ...     index = fluid.layers.assign(np.array([2, 0], "int32"))
        ...     out = fluid.layers.gather(x, index)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[3.],
               [1.]], dtype=float32)]
    """
    check_type(input, "input", Variable, "gather")
    return add_op("gather", {"X": input, "Index": index}, input.dtype, {"overwrite": overwrite})


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """Slices of ``input`` by their leading coordinates.

    Args:
        input: any shape.
        index: int32 or int64 ``(..., k)``: ``k`` coordinates for each slice.
        name: prefix of names.

    Returns:
        ``index.shape[:-1] + input.shape[k:]``. Source: Paddle op ``gather_nd``.

    Raises:
        EnforceNotMet: ``index`` does not hold int32 or int64, or its rows are longer than the rank
            of ``input``.

    See Also:
        :func:`gather`: whole rows by number.
        :func:`index_select`: along any axis.
        :func:`index_sample`: other columns in every row.
        :func:`slice`: a range.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     index = fluid.layers.assign(np.array([[0, 1], [1, 0]], "int32"))
        ...     out = fluid.layers.gather_nd(x, index)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([2., 3.], dtype=float32)]
    """
    check_type(input, "input", Variable, "gather_nd")
    return add_op("gather_nd", {"X": input, "Index": index}, input.dtype, name=name)


def scatter(
    input: Variable,
    index: Variable,
    updates: Variable,
    name: str | None = None,
    overwrite: bool = True,
) -> Variable:
    """A copy of ``input`` with some rows replaced.

    Args:
        input: ``(N, ...)``.
        index: indices of the rows, int32 or int64 ``(M,)`` or ``(M, 1)``.
        updates: the new rows ``(M, ...)``.
        name: prefix of names.
        overwrite: the last update of a repeated row wins. False replaces each row by the sum of its
            updates.

    Returns:
        ``(N, ...)``. Source: Paddle op ``scatter``.

    Raises:
        EnforceNotMet: ``updates`` does not have a row of ``input`` for each of ``index``, or
            another type.

    See Also:
        :func:`gather`: whole rows by number.
        :func:`gather_nd`: by several indices.
        :func:`index_select`: along any axis.
        :func:`index_sample`: other columns in every row.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0], [2.0]], "float32"))
        ...     index = fluid.layers.assign(np.array([1], "int32"))
        ...     updates = fluid.layers.assign(np.array([[9.0]], "float32"))
        ...     out = fluid.layers.scatter(x, index, updates)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1.],
               [9.]], dtype=float32)]
    """
    check_type(input, "input", Variable, "scatter")
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return add_op("scatter", inputs, input.dtype, {"overwrite": overwrite}, name=name)


def scatter_nd_add(
    ref: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """A copy of ``ref`` with updates added to some slices.

    Args:
        ref: any shape.
        index: int32 or int64 ``(..., k)``: ``k`` coordinates for each slice.
        updates: values to add, ``index.shape[:-1] + ref.shape[k:]``.
        name: prefix of names.

    Returns:
        Like ``ref``. Source: Paddle op ``scatter_nd_add``.

    Raises:
        ValueError: ``ref`` and ``updates`` have different data types.

    See Also:
        :func:`scatter`: writes rows.
        :func:`scatter_nd`: the same, to zeros.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 1.0, 1.0], "float32"))
        ...     index = fluid.layers.assign(np.array([[1], [1]], "int32"))
        ...     updates = fluid.layers.assign(np.array([5.0, 6.0], "float32"))
        ...     out = fluid.layers.scatter_nd_add(x, index, updates)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([ 1., 12.,  1.], dtype=float32)]
    """
    check_type(ref, "ref", Variable, "scatter_nd_add")
    if ref.dtype != updates.dtype:
        raise ValueError(f"scatter_nd_add takes one data type, not {ref.spec} and {updates.spec}")
    inputs = {"X": ref, "Index": index, "Updates": updates}
    return add_op("scatter_nd_add", inputs, ref.dtype, name=name)


def scatter_nd(
    index: Variable, updates: Variable, shape: Sequence[int], name: str | None = None
) -> Variable:
    """A tensor of zeros with updates added to some slices.

    Args:
        index: int32 or int64 ``(..., k)``: ``k`` coordinates for each slice.
        updates: values to add, ``index.shape[:-1] + shape[k:]``.
        shape: shape of the result.
        name: prefix of names.

    Returns:
        A tensor of this shape and the type of ``updates``. Source: Paddle op ``scatter_nd_add``.

    Raises:
        EnforceNotMet: ``index`` does not hold int32 or int64, or ``updates`` does not fit it.

    See Also:
        :func:`scatter`: writes rows.
        :func:`scatter_nd_add`: adds to elements by index.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     index = fluid.layers.assign(np.array([[1], [3]], "int32"))
        ...     updates = fluid.layers.assign(np.array([5.0, 6.0], "float32"))
        ...     out = fluid.layers.scatter_nd(index, updates, shape=[4])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0., 5., 0., 6.], dtype=float32)]
    """
    return scatter_nd_add(zeros(shape, updates.dtype), index, updates, name)


def slice(input: Variable, axes: Sequence[int], starts: Any, ends: Any) -> Variable:
    """The part between ``starts`` and ``ends`` along some axes.

    Args:
        input: any shape.
        axes: the axes to slice.
        starts: first position per axis; negative counts from the end.
        ends: position after the last, per axis.

    Returns:
        The part. Source: Paddle op ``slice``.

    Raises:
        ValueError: starts or ends are neither sequences nor variables.

    See Also:
        :func:`strided_slice`: with steps.
        :func:`crop_tensor`: by shape and offsets.
        :func:`split`: all parts.
        :func:`gather`: rows by number.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     out = fluid.layers.slice(x, axes=[0], starts=[1], ends=[3])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([2., 3.], dtype=float32)]
    """
    return _slice("slice", input, axes, {"Starts": starts, "Ends": ends})


def strided_slice(
    input: Variable, axes: Sequence[int], starts: Any, ends: Any, strides: Any
) -> Variable:
    """Every ``strides``-th position between ``starts`` and ``ends`` along some axes.

    Args:
        input: any shape.
        axes: the axes to slice.
        starts: first position per axis; negative counts from the end.
        ends: position after the last, per axis.
        strides: step per axis, possibly negative.

    Returns:
        The part. Source: Paddle op ``strided_slice``.

    Raises:
        TypeError: ``input`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: ``axes``, ``starts``, ``ends`` and ``strides`` have different lengths, or an
            axis does not exist.

    See Also:
        :func:`slice`: a range of each axis.
        :func:`crop_tensor`: by shape and offsets.
        :func:`split`: all parts.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0, 4.0], "float32"))
        ...     out = fluid.layers.strided_slice(x, axes=[0], starts=[0], ends=[4], strides=[2])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1., 3.], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", NO_HALF, "strided_slice")
    bounds = {"Starts": starts, "Ends": ends, "Strides": strides}
    for word, values in bounds.items():
        check_type(values, word.lower(), (list, tuple, Variable), "strided_slice")
    return _slice("strided_slice", input, axes, bounds)


def _slice(op_type: str, input: Variable, axes: Sequence[int], bounds: dict[str, Any]) -> Variable:
    helper = LayerHelper(op_type)
    inputs: dict[str, Any] = {"Input": input}
    attrs: dict[str, Any] = {"axes": list(axes)}
    known = [True] * len(axes)
    for word, values in bounds.items():
        if not isinstance(values, (list, tuple, Variable)):
            raise ValueError(f"{word.lower()} of {op_type} must be a list, a tuple or a Variable")
        slots = (f"{word}Tensor", f"{word}TensorList")
        numbers_or_tensors(helper, values, slots, word.lower(), inputs, attrs)
        told = [not isinstance(values, Variable)] * len(axes)
        if told and told[0]:
            told = [not isinstance(value, Variable) for value in values]
        known = [both and here for both, here in zip(known, told, strict=False)]
    attrs["infer_flags"] = [1 if k else -1 for k in known]
    return add_outputs(helper, inputs, {"Out": input.dtype}, attrs)["Out"]


def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """Ids as rows with a single 1.

    Args:
        input: int32 or int64 ids ``(..., 1)``.
        depth: width of the rows.
        allow_out_of_range: return zeros for ids outside ``[0, depth)`` instead of raising an error.

    Returns:
        float32 ``(..., depth)``. Source: Paddle op ``one_hot``.

    Raises:
        TypeError: ``input`` is no variable of type int32 or int64.
        EnforceNotMet: ``depth`` is not positive.

    See Also:
        :func:`~dpexec.one_hot`: the newer form, for indices of any shape.
        :func:`embedding`: rows of a table by id.
        :func:`gather`: rows of a variable by index.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0], [2]], "int32"))
        ...     out = fluid.layers.one_hot(x, depth=3)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 0., 0.],
               [0., 0., 1.]], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", INTEGERS, "one_hot")
    check_type(depth, "depth", (int, Variable), "one_hot")
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"allow_out_of_range": allow_out_of_range}
    number_or_tensor(depth, "depth_tensor", "depth", inputs, attrs)
    return add_op("one_hot", inputs, "float32", attrs, stop_gradient=True)


def where(condition: Variable) -> Variable:
    """Coordinates of the elements that are true, int64 ``(count, rank)``.

    Args:
        condition: bool, or numbers (true where not 0).

    Returns:
        The coordinates in order. Source: Paddle op ``where_index``.

    Raises:
        TypeError: ``condition`` is no variable.

    See Also:
        :func:`equal`: element by element.
        :func:`less_than`: element by element.
        :func:`logical_and`: combines the results.
        :func:`cond`: runs one of two branches.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 5.0, 2.0], "float32"))
        ...     y = fluid.layers.assign(np.array([3.0, 3.0, 3.0], "float32"))
        ...     out = fluid.layers.where(fluid.layers.less_than(x, y))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[0],
               [2]])]
    """
    check_type(condition, "condition", Variable, "where")
    return add_op("where_index", {"Condition": condition}, "int64")
