"""``index_sample``, ``index_select`` and ``multiplex``: elements chosen along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._rows import added_rows, check_rows
from dpexec.engine.ops._shapes import (
    require_axis,
    require_integer,
    require_same_dtype,
    require_same_shape,
)


def _infer_sample(x: Spec, index: Spec) -> Spec:
    require_integer(index, "Index")
    require(
        x.rank == index.rank == 2 and dims_match(x.shape[0], index.shape[0]),
        f"X {x} and Index {index} must be matrices with equally many rows",
    )
    return x.replace(shape=(x.shape[0], index.shape[1]), lod_level=index.lod_level)


@op(
    "index_sample",
    inputs="X Index",
    infer=_infer_sample,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4)), "Index": r.integers(0, 4, (3, 2))}),
        Sample({"X": r.normal((2, 3)), "Index": np.array([[0, 0, 2, 1], [1, 1, 1, 1]])}),
        Sample({"X": r.normal((2, 3)), "Index": np.array([[2], [0]], dtype=np.int32)}),
        Sample(
            {"X": np.array([[1, 2], [3, 4]]), "Index": np.array([[1], [0]])},
            expected={"Out": np.array([[2], [3]])},
        ),
    ],
)
def index_sample(xp: Any, x: Any, index: Any) -> Any:
    """``out[i, j] = x[i, index[i, j]]``. Source: Paddle op ``index_sample``.

    Raises:
        ValueError: there is no such column.
    """
    check_rows(xp, index, x.shape[1], "Index")
    return xp.take_along_axis(x, index, axis=1)


@index_sample.grad("X", "Index", "Out@GRAD", outputs="X@GRAD", dense=True)
def index_sample_grad(xp: Any, x: Any, index: Any, d_out: Any) -> Any:
    """The gradients of all copies of an element, added up."""
    flat = (index + x.shape[1] * xp.arange(x.shape[0])[:, None]).reshape(-1)
    return added_rows(xp, flat, d_out, (x.size,)).reshape(x.shape)


def _infer_select(x: Spec, index: Spec, *, dim: int = 0) -> Spec:
    require_integer(index, "Index")
    require(
        index.rank == 1 or (index.rank == 2 and index.shape[1] in (1, -1)),
        f"Index {index} must be a vector or a column",
    )
    axis = require_axis(dim, x, attribute="dim")
    shape = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
    return x.replace(shape=shape)


@op(
    "index_select",
    inputs="X Index",
    infer=_infer_select,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4)), "Index": np.array([2, 0, 2])}),
        Sample({"X": r.normal((2, 3, 4)), "Index": np.array([1, 1])}, {"dim": 1}),
        Sample({"X": r.normal((2, 3)), "Index": np.array([2, 0], dtype=np.int32)}, {"dim": -1}),
        Sample({"X": r.normal((2, 3)), "Index": np.array([[2], [0], [2]])}, {"dim": 1}),
    ],
)
def index_select(xp: Any, x: Any, index: Any, *, dim: int = 0) -> Any:
    """The slices of ``x`` along ``dim`` with the numbers ``Index``, a vector or a column.

    Source: Paddle op ``index_select``.

    Raises:
        ValueError: there is no such slice.
    """
    check_rows(xp, index, x.shape[dim], "Index")
    return x.take(index.reshape(-1), axis=dim)


@index_select.grad("X", "Index", "Out@GRAD", outputs="X@GRAD", dense=True)
def index_select_grad(xp: Any, x: Any, index: Any, d_out: Any, *, dim: int = 0) -> Any:
    """The gradients of all copies of a slice, added up."""
    shape = (x.shape[dim], *np.delete(x.shape, dim))
    sums = added_rows(xp, index.reshape(-1), xp.moveaxis(d_out, dim, 0), shape)
    return xp.moveaxis(sums, 0, dim)


def _infer_multiplex(ids: Spec, candidates: list[Spec]) -> Spec:
    require_integer(ids, "Ids")
    require(ids.rank == 2 and ids.shape[1] in (1, -1), f"Ids {ids} must be a column")
    require(len(candidates) >= 2, "X must hold at least 2 tensors")
    first = candidates[0]
    require(first.rank >= 2, f"X {first} must have at least 2 dimensions")
    for other in candidates[1:]:
        require_same_dtype(first, other, "all inputs")
        require_same_shape(first, other, "all inputs")
    return first.replace(shape=(ids.shape[0], *first.shape[1:]), lod_level=0)


@op(
    "multiplex",
    inputs="Ids X[]",
    infer=_infer_multiplex,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {
                "Ids": np.array([[1], [0], [1]], dtype=np.int32),
                "X": [r.normal((3, 4)), r.normal((3, 4))],
            }
        ),
        Sample(
            {
                "Ids": np.array([[2], [0], [2], [1]], dtype=np.int32),
                "X": [r.normal((4, 2, 3)) for _ in range(3)],
            }
        ),
        Sample(
            {
                "Ids": np.array([[1], [0]], dtype=np.int32),
                "X": [np.array([[1, 2], [3, 4]]), np.array([[5, 6], [7, 8]])],
            },
            expected={"Out": np.array([[5, 6], [3, 4]])},
        ),
        Sample({"Ids": np.array([[0], [1]], np.int32), "X": [r.normal((2, 1)) for _ in range(2)]}),
    ],
)
def multiplex(xp: Any, ids: Any, candidates: list[Any]) -> Any:
    """Row ``i`` of the candidate with the number ``ids[i]``. Source: Paddle op ``multiplex``.

    Raises:
        ValueError: there is no such candidate.
    """
    chosen = ids.reshape(-1)
    check_rows(xp, chosen, len(candidates), "Ids")
    out, count = candidates[0][: len(chosen)].copy(), len(chosen)
    for number, candidate in enumerate(candidates[1:], 1):
        mine = (chosen == number).reshape(-1, *[1] * (out.ndim - 1))
        out = xp.where(mine, candidate[:count], out)
    return out


@multiplex.grad("Ids", "Out@GRAD", outputs="X@GRAD[]", infer=lambda ids, d_out: d_out)
def multiplex_grad(xp: Any, ids: Any, d_out: Any, *, needs: tuple[list[bool]] = ([],)) -> Any:
    """Every candidate gets the gradients of the rows that it gave, and 0 for the others."""
    chosen = ids.reshape(-1, *(1,) * (d_out.ndim - 1))
    grads = [
        d_out * (chosen == number) if wanted else None for number, wanted in enumerate(needs[0])
    ]
    return (grads,)
