"""``fused_embedding_seq_pool``: sums of embeddings over sequences of ids."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._rows import check_rows, fill_rows, without
from dpexec.engine.ops._sequences import per_row, require_sequences, sequence_count, sequence_sums

_NO_PADDING = -1


def _infer(table: Spec, ids: Spec, lod: Spec | None, *, combiner: str = "sum") -> Spec:
    require(table.rank == 2, f"W {table} must be a matrix")
    require(
        ids.rank in (2, 3) and ids.dtype == VarType.INT64 and ids.shape[-1] in (1, -1),
        f"Ids {ids} must be int64 (rows, 1), or (rows, k, 1)",
    )
    require(combiner == "sum", f"combiner {combiner!r} is not supported, only 'sum'")
    require_sequences(ids, lod, "Ids")
    count = ids.shape[1] if ids.rank == 3 else 1
    width = -1 if min(count, table.shape[1]) < 0 else count * table.shape[1]
    return Spec((sequence_count(lod), width), table.dtype)


def _sample(r: Any, *more: int, **attrs: Any) -> Sample:
    inputs = {
        "W": r.normal((6, 3)),
        "Ids": r.integers(0, 6, (5, *more, 1)),
        "Ids@LOD": Lod([[0, 2, 5]]),
    }
    return Sample(inputs, attrs)


@op(
    "fused_embedding_seq_pool",
    inputs="W Ids Ids@LOD",
    infer=_infer,
    attrs={"grad_inplace": False, "is_sparse": False},
    checks_values=True,
    samples=lambda r: [
        _sample(r),
        _sample(r, is_sparse=True),
        _sample(r, padding_idx=2),
        _sample(r, 2),
        _sample(r, 1, is_sparse=True),
    ],
)
def fused_embedding_seq_pool(
    xp: Any, table: Any, ids: Any, lod: Lod, *, padding_idx: int = _NO_PADDING
) -> Any:
    """For every sequence of ids, the sum of the rows of W with these ids.

    Ids are ``(rows, 1)``, the result is ``(sequences, width)``. For ids ``(rows, k, 1)`` the result
    has ``k`` such sums side by side. The row ``padding_idx`` counts as 0. Source: Paddle op
    ``fused_embedding_seq_pool``.
    """
    check_rows(xp, ids, table.shape[0], "Ids")
    rows = ids.reshape(-1)
    found = table[rows]
    if padding_idx != _NO_PADDING:
        found = fill_rows(xp, found, rows == padding_idx, 0)
    return sequence_sums(xp, found.reshape(len(ids), -1), lod)


def _infer_grad(
    table: Spec, ids: Spec, lod: Spec | None, d_out: Spec, *, is_sparse: bool = False
) -> Spec:
    return table.replace(kind=VarType.SELECTED_ROWS) if is_sparse else table


@fused_embedding_seq_pool.grad(
    "W", "Ids", "Ids@LOD", "Out@GRAD", outputs="W@GRAD", infer=_infer_grad
)
def fused_embedding_seq_pool_grad(
    xp: Any,
    table: Any,
    ids: Any,
    lod: Lod,
    d_out: Any,
    *,
    is_sparse: bool = False,
    padding_idx: int = _NO_PADDING,
) -> Any:
    """The gradient of a sum is that of every row in it."""
    rows = ids.reshape(-1)
    value = per_row(xp, d_out, lod).reshape(-1, table.shape[1])
    if padding_idx != _NO_PADDING:
        rows, value = without(xp, rows, value, padding_idx)
    gradient = SelectedRows(rows, table.shape[0], value)
    return gradient if is_sparse else gradient.to_dense(xp)
