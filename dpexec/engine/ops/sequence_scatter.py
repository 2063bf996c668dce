"""``sequence_scatter``: sequences of updates added to the rows of a dense tensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.core.runs import add_at
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._rows import check_rows, require_row_numbers
from dpexec.engine.ops._sequences import row_owners, sequence_count
from dpexec.engine.ops._shapes import require_same_dtype, same_dims

_LOD = Lod([[0, 2, 2, 5]])
_IDS = np.array([[0], [3], [1], [2], [1]])


def _infer(x: Spec, ids: Spec, lod: Spec | None, updates: Spec, updates_lod: Spec | None) -> Spec:
    require_same_dtype(x, updates, "X and Updates")
    require_row_numbers(ids, "Ids")
    require(x.rank >= 2, f"X {x} must have two dimensions or more")
    require(
        ids.shape[0] == updates.shape[0] and same_dims(ids.shape, updates.shape),
        f"Ids {ids} and Updates {updates} must be alike",
    )
    require(
        dims_match(x.shape[0], sequence_count(lod)),
        f"X {x} must have a row for every sequence of Ids, which has {sequence_count(lod)}",
    )
    return x.replace(lod_level=0)


def _sample(x: Any, ids: Any, updates: Any, lod: Lod, **more: Any) -> Sample:
    inputs = {"X": x, "Ids": ids, "Ids@LOD": lod, "Updates": updates, "Updates@LOD": lod}
    return Sample(inputs, **more)


@op(
    "sequence_scatter",
    inputs="X Ids Ids@LOD Updates Updates@LOD",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        _sample(r.normal((3, 4)), _IDS, r.normal((5, 1)), _LOD),
        _sample(r.normal((1, 4)), _IDS, r.normal((5, 1)), Lod([[0, 5]])),
        _sample(
            np.ones((2, 3)),
            np.array([[0], [1], [1]]),
            np.array([[1.0], [2.0], [3.0]]),
            Lod([[0, 1, 3]]),
            expected={"Out": np.array([[2.0, 1.0, 1.0], [1.0, 6.0, 1.0]])},
        ),
    ],
)
def sequence_scatter(xp: Any, x: Any, ids: Any, lod: Lod, updates: Any, updates_lod: Lod) -> Any:
    """A copy of X, with the updates of a sequence added to each row, in the columns ``Ids``.

    In rows with several dimensions, columns are counted through the flattened row. Source: Paddle
    op ``sequence_scatter``.

    Raises:
        ValueError: there is no such column, or Ids and Updates have different sequences.
    """
    if lod != updates_lod:
        raise ValueError(f"Ids has sequences {lod}, but Updates {updates_lod}")
    columns, width = ids.reshape(-1), math.prod(x.shape[1:])
    check_rows(xp, columns, width, "Ids")
    out = x.copy()
    first = xp.asarray(row_owners(lod) * width)
    add_at(xp, out.reshape(-1), first + columns, updates.reshape(-1))
    return out


@sequence_scatter.grad(
    "Ids", "Ids@LOD", "Updates", "Out@GRAD", outputs="X@GRAD Updates@GRAD",
    infer=lambda ids, lod, updates, d_out: (d_out, updates.replace(lod_level=0)),
)  # fmt: skip
def sequence_scatter_grad(
    xp: Any, ids: Any, lod: Lod, updates: Any, d_out: Any, *, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The gradient itself for X, and its elements for the updates."""
    d_updates = None
    if needs[1]:
        rows = d_out.reshape(len(d_out), math.prod(d_out.shape[1:]))
        d_updates = rows[xp.asarray(row_owners(lod)), ids.reshape(-1)].reshape(updates.shape)
    return d_out if needs[0] else None, d_updates
