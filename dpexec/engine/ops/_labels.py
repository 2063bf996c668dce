"""Checks and shapes of class labels, shared by losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.ranges import require_between
from dpexec.engine.ir.opdef import Spec, require
from dpexec.engine.ops._shapes import same_dims


def positions(xp: Any, label: Any, classes: int, ignore_index: int) -> tuple[Any, Any, Any]:
    """Where the labelled entries lie in a ``(rows, classes)`` matrix.

    Args:
        xp: array module.
        label: integers, one per row.
        classes: number of classes.
        ignore_index: label of rows that do not count.

    Returns:
        Row numbers, column numbers (0 for rows that do not count), and a mask of the rows that
        do not count, None where all count.

    Raises:
        ValueError: a label is neither a class nor ``ignore_index``.
    """
    columns = label.reshape(-1)
    rows = xp.arange(columns.size)
    ignored = None
    if xp is not np or _may_hold(columns, ignore_index):  # a GPU would make the host wait
        ignored = columns == ignore_index
        columns = xp.where(ignored, 0, columns)
    require_classes(xp, columns, classes)
    return rows, columns, ignored


def require_classes(xp: Any, labels: Any, classes: int) -> None:
    """Refuse labels that are no class.

    Args:
        xp: array module.
        labels: integers.
        classes: number of classes.

    Raises:
        ValueError: a label is none.
    """
    message = f"Label value >= 0 and < {classes} expected, but got {{}}"
    require_between(xp, labels, 0, classes - 1, message)


def _may_hold(numbers: Any, number: int) -> bool:
    return numbers.size and bool(numbers.min() <= number <= numbers.max())


def check_hard(x: Spec, label: Spec, axis: int = -1) -> tuple[int, ...]:
    """Check integer labels of the scores ``x`` and give the shape of the losses, the labels'."""
    require(x.rank, f"X {x} must have an axis of classes")
    require(
        label.dtype in (VarType.INT64, VarType.INT32),
        f"Label {label} must hold integers, or soft_label must be set",
    )
    axis %= x.rank
    expected = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    shapes = [expected]
    if axis == x.rank - 1 and x.rank > 1:
        shapes.append(expected[:-1])
    require(
        any(same_dims(label.shape, shape) for shape in shapes),
        f"Label {label} must have the shape {list(expected)} for X {x}",
    )
    return tuple(
        known if size < 0 else size
        for size, known in zip(expected[: label.rank], label.shape, strict=True)
    )


def check_soft(x: Spec, label: Spec) -> None:
    """Check labels that are probabilities."""
    require(
        same_dims(x.shape, label.shape) and label.dtype == x.dtype,
        f"soft Label {label} must have shape and type of X {x}",
    )
