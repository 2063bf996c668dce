"""``similarity_focus``: a mask of the largest elements, one for each row and column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_float

_X = np.array([[[[0.8, 0.1], [0.4, 0.5]], [[0.9, 0.7], [0.9, 0.9]]]])


def _infer(x: Spec, *, axis: int, indexes: Sequence[int]) -> Spec:
    require_float(x)
    require(x.rank == 4, f"X {x} must have 4 dimensions")
    require(axis in (1, 2, 3), f"axis must be 1, 2 or 3, but is {axis}")
    size = x.shape[axis]
    require(
        indexes and all(i >= 0 and (size < 0 or i < size) for i in indexes),
        f"indexes are {list(indexes)}, but must name positions along axis {axis} of X {x}",
    )
    return x


@op(
    "similarity_focus",
    inputs="X",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.distinct((2, 3, 4, 2))}, {"axis": 1, "indexes": [0, 2]}),
        Sample({"X": r.distinct((2, 3, 4, 2))}, {"axis": 2, "indexes": [1]}),
        Sample({"X": r.distinct((2, 3, 2, 4))}, {"axis": 3, "indexes": [3, 0]}),
        Sample(
            {"X": _X},
            {"axis": 1, "indexes": [0]},
            expected={"Out": np.array([[[[1.0, 0.0], [0.0, 1.0]]] * 2])},
        ),
    ],
)
def similarity_focus(xp: Any, x: Any, *, axis: int, indexes: Sequence[int]) -> Any:
    """A mask in the shape of X, 1 for chosen elements; it is constant along ``axis``.

    For every index, the elements of that section of X are visited from the largest to the smallest.
    An element is chosen if no other one of its row or column was chosen. Source: Paddle op
    ``similarity_focus``; He, Lin 2016 (pairwise word interaction).
    """
    values = x.tolist()
    planes = np.zeros(tuple(n for i, n in enumerate(x.shape) if i != axis), dtype=x.dtype)
    for image in range(len(values)):
        sections = np.moveaxis(np.asarray(values[image]), axis - 1, 0)
        for index in indexes:
            for row, column in _chosen(sections[index]):
                planes[image, row, column] = 1
    return xp.array(xp.broadcast_to(xp.expand_dims(xp.asarray(planes), axis), x.shape))


def _chosen(section: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    """The positions of the chosen elements; no two of them share a row or column."""
    rows, columns = section.shape
    found: list[tuple[int, int]] = []
    free_rows, free_columns = set(range(rows)), set(range(columns))
    for place in np.argsort(-section, axis=None, kind="stable"):
        row, column = divmod(int(place), columns)
        if row in free_rows and column in free_columns:
            found.append((row, column))
            free_rows.remove(row)
            free_columns.remove(column)
    return found
