"""Rows selected by number: shared by gathering and scattering operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.ranges import require_between
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Spec, require
from dpexec.engine.ops._shapes import require_integer

REMOTE: dict[str, Any] = {
    "remote_prefetch": False,
    "trainer_id": 0,
    "height_sections": [],
    "epmap": [],
    "table_names": [],
}
"""Attributes of operators that read rows of a table which may lie on parameter servers."""


def check_rows(xp: Any, rows: Any, height: int, name: str) -> None:
    """Reject row numbers outside a matrix.

    Raises:
        ValueError: a number is negative or not below ``height``.
    """
    require_between(xp, rows, 0, height - 1, f"{name}: expected >= 0 and < {height}, but got {{}}")


def unnumbered(xp: Any, values: Any) -> SelectedRows:
    """SelectedRows with all rows of ``values``; the row numbers are to be set later."""
    return SelectedRows(xp.zeros(0, np.int64), len(values), values)


def require_row_numbers(rows: Spec, name: str) -> int:
    """Check a vector (or column) of row numbers and give its length."""
    require_integer(rows, name)
    require(
        rows.rank == 1 or (rows.rank == 2 and rows.shape[1] in (1, -1)),
        f"{name} {rows} must be a vector or have a second dimension of 1",
    )
    return rows.shape[0]


def added_rows(xp: Any, rows: Any, values: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of ``shape`` with ``values`` added at ``rows``; duplicate rows are summed."""
    return SelectedRows(rows, shape[0], values.reshape(len(rows), *shape[1:])).to_dense(xp)


def counted(xp: Any, numbers: Any, chosen: Any, size: int) -> Any:
    """How often each number below ``size`` occurs among the chosen elements.

    Args:
        xp: ``numpy`` or ``cupy``.
        numbers: integers.
        chosen: booleans, of the same shape.
        size: upper bound, larger than all numbers.

    Returns:
        Integers, ``(size,)``.
    """
    if xp is np:
        return np.bincount(numbers[chosen], minlength=size)
    counts = xp.zeros(size, np.int32)
    xp.add.at(counts, numbers, chosen.astype(np.int32))  # the order of integers does not matter
    return counts


def last_places(known: Any, wanted: Any) -> Any:
    """The last position of each wanted number among the known ones; -1 if it is missing."""
    if not len(known):
        return np.full(len(wanted), -1)
    order = np.argsort(known, kind="stable")
    ordered = known[order]
    last = np.searchsorted(ordered, wanted, "right") - 1
    return np.where((last >= 0) & (ordered[last] == wanted), order[last], -1)


def fill_rows(xp: Any, array: Any, chosen: Any, number: float) -> Any:
    """Set some rows of an array to a number; returns the array, or a copy.

    CuPy would count the elements of a mask before storing, and the host would wait for the count.

    Args:
        xp: ``numpy`` or ``cupy``.
        array: ``(*shape, ...)``.
        chosen: booleans, ``(*shape)``.
        number: for every element of these rows.
    """
    if xp is np:
        array[chosen] = number
        return array
    mask = chosen.reshape(*chosen.shape, *[1] * (array.ndim - chosen.ndim))
    return xp.where(mask, array.dtype.type(number), array)


def without(xp: Any, rows: Any, value: Any, row: int) -> tuple[Any, Any]:
    """Row numbers and values without those of one row.

    On a GPU the number of entries stays the same, as the host does not know how many match: the
    removed entries become zeros for another row that is present.

    Args:
        xp: ``numpy`` or ``cupy``.
        rows: numbers, ``(n,)``.
        value: array ``(n, width)``.
        row: the row to remove.
    """
    counts = rows != row
    if xp is np:
        return rows[counts], value[counts]
    if not rows.size:
        return rows, value
    other = rows.take(counts.argmax())
    return xp.where(counts, rows, other), xp.where(counts[:, None], value, value.dtype.type(0))
