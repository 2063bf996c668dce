"""``lookup_table`` and ``lookup_table_v2``: rows of an embedding table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import OpDef, Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._costs import taken_rows
from dpexec.engine.ops._rows import REMOTE, added_rows, check_rows, fill_rows, without

NO_PADDING = -1

_DISTRIBUTED = {"is_distributed": False, **REMOTE}


def _check(table: Spec, ids: Spec) -> None:
    require(table.rank == 2, f"W {table} must be a matrix")
    require(ids.dtype == VarType.INT64, f"Ids {ids} must be int64")


def _read(table: Spec, ids: Spec, shape: tuple[int, ...]) -> Spec:
    shape = (*shape, table.shape[1])
    return Spec(shape, table.dtype, lod_level=ids.lod_level)


def _infer(table: Spec, ids: Spec) -> Spec:
    _check(table, ids)
    require(
        ids.rank and ids.shape[-1] == 1,
        f"the last dimension of Ids {ids} must be 1; fluid.embedding takes ids of any shape",
    )
    return _read(table, ids, ids.shape[:-1])


def _infer_v2(table: Spec, ids: Spec) -> Spec:
    _check(table, ids)
    return _read(table, ids, ids.shape)


def _samples(ids_shape: tuple[int, ...]) -> Any:
    def samples(r: SampleRng) -> list[Sample]:
        return [
            Sample({"W": r.normal((7, 3)), "Ids": r.integers(0, 7, ids_shape)}),
            Sample({"W": r.normal((4, 3)), "Ids": r.integers(0, 4, ids_shape)}, {"padding_idx": 2}),
            Sample(
                {"W": r.normal((5, 2)), "Ids": r.integers(0, 5, ids_shape)}, {"is_sparse": True}
            ),
            Sample(
                {"W": r.normal((4, 2)), "Ids": r.integers(0, 4, ids_shape)},
                {"is_sparse": True, "padding_idx": 1},
                deviates={
                    "W@GRAD": (
                        "gives the row of padding_idx a gradient if gradients are sparse, so "
                        "optimizers move it; dpexec gives it none"
                    )
                },
            ),
            Sample(
                {
                    "W": SelectedRows(np.array([3, 0, 5, 1]), 6, r.normal((4, 2))),
                    "Ids": np.array([1, 5, 3, 0, 3, 1, 1, 5]).reshape(ids_shape),
                },
                {"is_sparse": True},
                grad=(),
            ),
        ]

    return samples


def _rows(xp: Any, table: Any, ids: Any, padding_idx: int) -> Any:
    if isinstance(table, SelectedRows):
        out = table.value.take(table.positions(ids, "Ids", xp), axis=0)
    else:
        check_rows(xp, ids, table.shape[0], "Ids")
        out = table.take(ids, axis=0)
    if padding_idx != NO_PADDING:
        out = fill_rows(xp, out, ids == padding_idx, 0)
    return out


_rows_of_table = partial(
    op,
    inputs="W Ids",
    sparse=("W",),
    checks_values=True,
    capturable=True,
    looks_up=True,
    flops=0,
    bytes=taken_rows("Ids"),
)


@_rows_of_table(
    "lookup_table",
    infer=_infer,
    attrs={"is_sparse": False, **_DISTRIBUTED, "grad_inplace": False},
    samples=_samples((4, 2, 1)),
    precision="gray",
)
def lookup_table(xp: Any, table: Any, ids: Any, *, padding_idx: int = NO_PADDING) -> Any:
    """Rows ``W[ids]`` of a table ``(rows, width)``; ids ``(..., 1)`` give ``(..., width)``.

    Rows of ``padding_idx`` read as 0. A table may be SelectedRows, with all rows that are asked
    for. Source: Paddle op ``lookup_table``.
    """
    return _rows(xp, table, ids.reshape(ids.shape[:-1]), padding_idx)


@_rows_of_table(
    "lookup_table_v2",
    infer=_infer_v2,
    attrs={"is_sparse": False, **_DISTRIBUTED},
    samples=_samples((4, 2)),
)
def lookup_table_v2(xp: Any, table: Any, ids: Any, *, padding_idx: int = NO_PADDING) -> Any:
    """Rows ``W[ids]`` of a table ``(rows, width)``; ids ``(...)`` give ``(..., width)``.

    Rows of ``padding_idx`` read as 0. A table may be SelectedRows, with all rows that are asked
    for. Source: Paddle op ``lookup_table_v2``.
    """
    return _rows(xp, table, ids, padding_idx)


def _infer_grad(table: Spec, ids: Spec, d_out: Spec, *, is_sparse: bool = False) -> Spec:
    return table.replace(kind=VarType.SELECTED_ROWS if is_sparse else VarType.LOD_TENSOR)


def _declare_grad(definition: OpDef) -> None:
    @definition.grad("W", "Ids", "Out@GRAD", outputs="W@GRAD", infer=_infer_grad, sparse=("W",))
    def lookup_grad(
        xp: Any,
        table: Any,
        ids: Any,
        d_out: Any,
        added: Callable[..., Any] = added_rows,
        *,
        is_sparse: bool = False,
        padding_idx: int = NO_PADDING,
    ) -> Any:
        """Row gradients in the order of the ids: as they are if sparse, else added up."""
        rows = ids.reshape(-1)
        value = d_out.reshape(rows.size, table.shape[1])
        if padding_idx != NO_PADDING:
            rows, value = without(xp, rows, value, padding_idx)
        if is_sparse:
            return SelectedRows(rows, table.shape[0], value)
        return added(xp, rows, value, table.shape)


_declare_grad(lookup_table)
_declare_grad(lookup_table_v2)
