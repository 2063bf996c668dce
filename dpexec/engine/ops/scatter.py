"""``scatter`` and ``scatter_nd_add``: rows written or added at given positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._rows import added_rows, check_rows, fill_rows, require_row_numbers
from dpexec.engine.ops._shapes import require_integer, require_same_dtype, same_dims
from dpexec.engine.ops.gather import flat_positions


def _infer(x: Spec, ids: Spec, updates: Spec) -> Spec:
    require_same_dtype(x, updates, "X and Updates")
    count = require_row_numbers(ids, "Ids")
    expected = (count, *x.shape[1:])
    require(
        same_dims(updates.shape, expected),
        f"Updates {updates} must have the shape {list(expected)} for X {x} and Ids {ids}",
    )
    return x.replace(lod_level=0)


_KEPT = (
    "gives the gradient of Out to rows of X that Updates replace; dpexec gives 0, as these rows "
    "do not reach Out"
)


@op(
    "scatter",
    inputs="X Ids Updates",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {"X": r.normal((4, 2)), "Ids": np.array([1, 3]), "Updates": r.normal((2, 2))},
            deviates={"X@GRAD": _KEPT},
        ),
        Sample(
            {"X": np.ones((3, 1)), "Ids": np.array([1, 1]), "Updates": np.array([[2.0], [4.0]])},
            expected={"Out": np.array([[1.0], [4.0], [1.0]])},
            deviates={
                "X@GRAD": _KEPT,
                "Updates@GRAD": (
                    "gives a gradient to rows of Updates that a later row overwrites; dpexec "
                    "gives 0"
                ),
            },
        ),
        Sample(
            {"X": np.ones((3, 1)), "Ids": np.array([1, 1]), "Updates": np.array([[2.0], [4.0]])},
            {"overwrite": False},
            expected={"Out": np.array([[1.0], [6.0], [1.0]])},
            deviates={"X@GRAD": _KEPT},
        ),
    ],
)
def scatter(xp: Any, x: Any, ids: Any, updates: Any, *, overwrite: bool = True) -> Any:
    """A copy of ``x`` whose rows ``Ids`` are replaced by those of ``Updates``.

    If a row occurs several times, the last update counts; with ``overwrite=False`` their sum.
    Source: Paddle op ``scatter``.

    Raises:
        ValueError: there is no such row.
    """
    rows = ids.reshape(-1)
    check_rows(xp, rows, x.shape[0], "Ids")
    out = x.copy()
    if not overwrite:
        updates = added_rows(xp, rows, updates, x.shape)[rows]
    elif xp is not np:  # CuPy leaves it open which of several updates stays
        updates = updates[_last_updates(xp, rows, x.shape[0])]
    out[rows] = updates
    return out


def _last_updates(xp: Any, rows: Any, height: int) -> Any:
    """For every update, the number of the last update of the same row."""
    last = xp.zeros(height, np.int32)
    xp.maximum.at(last, rows, xp.arange(rows.size, dtype=np.int32))
    return last[rows]


@scatter.grad("Ids", "Updates", "Out@GRAD", outputs="X@GRAD Updates@GRAD",
              infer=lambda ids, updates, d_out: (d_out, updates))  # fmt: skip
def scatter_grad(
    xp: Any,
    ids: Any,
    updates: Any,
    d_out: Any,
    *,
    overwrite: bool = True,
    needs: tuple[bool, bool],
) -> tuple[Any, Any]:
    """Each row's gradient goes to the input that the row is from (in Paddle, also to X)."""
    rows = ids.reshape(-1)
    d_x = d_updates = None
    if needs[0]:
        d_x = d_out.copy()
        d_x[rows] = 0
    if needs[1]:
        d_updates = d_out[rows]
        if overwrite:
            last = _last_updates(xp, rows, d_out.shape[0])
            d_updates = fill_rows(xp, d_updates, last != xp.arange(rows.size), 0)
    return d_x, d_updates


def _infer_nd(x: Spec, index: Spec, updates: Spec) -> Spec:
    require_integer(index, "Index")
    require_same_dtype(x, updates, "X and Updates")
    require(
        index.rank and 0 < index.shape[-1] <= x.rank,
        f"the last dimension of Index {index} must be between 1 and the rank of X {x}",
    )
    expected = (*index.shape[:-1], *x.shape[index.shape[-1] :])
    require(
        same_dims(updates.shape, expected),
        f"Updates {updates} must have the shape {list(expected)} for X {x} and Index {index}",
    )
    return x


@op(
    "scatter_nd_add",
    inputs="X Index Updates",
    infer=_infer_nd,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {
                "X": r.normal((3, 2)),
                "Index": np.array([[1, 0], [1, 0], [2, 1]]),
                "Updates": r.normal((3,)),
            }
        ),
        Sample(
            {"X": np.ones((3, 1)), "Index": np.array([[1], [1]]), "Updates": np.ones((2, 1))},
            expected={"Out": np.array([[1.0], [3.0], [1.0]])},
        ),
        Sample(
            {
                "X": r.normal((2, 3, 2)),
                "Index": np.array([[[1], [0]], [[1], [1]]]),
                "Updates": r.normal((2, 2, 3, 2)),
            }
        ),
    ],
)
def scatter_nd_add(xp: Any, x: Any, index: Any, updates: Any) -> Any:
    """``x`` with ``Updates`` added at the positions in the last dimension of ``Index``.

    Source: Paddle op ``scatter_nd_add``.

    Raises:
        ValueError: there is no such position.
    """
    depth = index.shape[-1]
    for axis in range(depth):
        check_rows(xp, index[..., axis], x.shape[axis], f"Index for dimension {axis}")
    merged = (math.prod(x.shape[:depth]), *x.shape[depth:])
    sums = added_rows(xp, flat_positions(xp, x.shape, index), updates, merged)
    return x + sums.reshape(x.shape)


@scatter_nd_add.grad("Index", "Updates", "Out@GRAD", outputs="X@GRAD Updates@GRAD",
                     infer=lambda index, updates, d_out: (d_out, updates))  # fmt: skip
def scatter_nd_add_grad(
    xp: Any, index: Any, updates: Any, d_out: Any, *, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The gradient itself for X, its elements at the positions for Updates."""
    chosen = None
    if needs[1]:
        chosen = d_out[tuple(index[..., axis] for axis in range(index.shape[-1]))]
        chosen = chosen.reshape(updates.shape)
    return d_out if needs[0] else None, chosen
