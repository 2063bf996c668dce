"""Sparse gradients as dense tensors."""

from __future__ import annotations

from dpexec.checks import check_type
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op

__all__ = ["get_tensor_from_selected_rows", "merge_selected_rows"]


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Sum the rows that occur several times in a sparse gradient.

    Args:
        x: a ``SelectedRows`` variable.
        name: prefix of the output's name.

    Returns:
        A ``SelectedRows`` variable with sorted rows. Source: Paddle op ``merge_selected_rows``.

    Raises:
        EnforceNotMet: ``x`` is no sparse gradient.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     ids = fluid.data("ids", [None], "int64")
        ...     rows = fluid.embedding(ids, [5, 2], is_sparse=True, param_attr="table")
        ...     _ = fluid.backward.append_backward(fluid.layers.reduce_sum(rows))
        ...     gradient = fluid.layers.merge_selected_rows(main.global_block().var("table@GRAD"))
        ...     gradient = fluid.layers.get_tensor_from_selected_rows(gradient)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     feed = {"ids": np.array([1, 3, 1])}
        ...     exe.run(main, feed=feed, fetch_list=[gradient])  # of rows 1 and 3
        [array([[2., 2.],
               [1., 1.]], dtype=float32)]
    """
    return add_op("merge_selected_rows", {"X": x}, x.dtype, name=name)


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """The rows of a sparse gradient, without their indices.

    Args:
        x: a ``SelectedRows`` variable of ``n`` rows.
        name: prefix of the output's name.

    Returns:
        A tensor ``(n, ...)``; before the program runs, its shape has the full matrix's height.
        Source: Paddle op ``get_tensor_from_selected_rows``.

    Raises:
        TypeError: ``x`` is not sparse.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     ids = fluid.data("ids", [None], "int64")
        ...     rows = fluid.embedding(ids, [5, 2], is_sparse=True, param_attr="table")
        ...     _ = fluid.backward.append_backward(fluid.layers.reduce_sum(rows))
        ...     gradient = fluid.layers.merge_selected_rows(main.global_block().var("table@GRAD"))
        ...     gradient = fluid.layers.get_tensor_from_selected_rows(gradient)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     feed = {"ids": np.array([1, 3, 1])}
        ...     exe.run(main, feed=feed, fetch_list=[gradient])  # of rows 1 and 3
        [array([[2., 2.],
               [1., 1.]], dtype=float32)]
    """
    check_type(x, "x", Variable, "get_tensor_from_selected_rows")
    if x.type != VarType.SELECTED_ROWS:
        raise TypeError(
            f"get_tensor_from_selected_rows takes SelectedRows, but {x.name} is a {x.type.name}"
        )
    return add_op("get_tensor_from_selected_rows", {"X": x}, x.dtype, name=name)
