"""Sparse gradients as dense tensors."""

from __future__ import annotations

from dpexec.checks import check_type
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import add_op

__all__ = ["get_tensor_from_selected_rows", "merge_selected_rows"]


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Add up the rows that a sparse gradient has several times.

    Args:
        x: a ``SelectedRows`` variable.
        name: what the output is named after.

    Returns:
        A ``SelectedRows`` variable with sorted rows. Source: Paddle op ``merge_selected_rows``.
    """
    return add_op("merge_selected_rows", {"X": x}, x.dtype, name=name)


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """The rows that a sparse gradient has, without their numbers.

    Args:
        x: a ``SelectedRows`` variable of ``n`` rows.
        name: what the output is named after.

    Returns:
        A tensor ``(n, ...)``; a program that is not running says the height of the full matrix.
        Source: Paddle op ``get_tensor_from_selected_rows``.

    Raises:
        TypeError: ``x`` is not sparse.
    """
    check_type(x, "x", Variable, "get_tensor_from_selected_rows")
    if x.type != VarType.SELECTED_ROWS:
        raise TypeError(
            f"get_tensor_from_selected_rows takes SelectedRows, but {x.name} is a {x.type.name}"
        )
    return add_op("get_tensor_from_selected_rows", {"X": x}, x.dtype, name=name)
