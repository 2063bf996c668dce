"""``lookup_table_dequant``: rows of an embedding table that is stored in bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, is_float, to_numpy
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._rows import check_rows, fill_rows
from dpexec.engine.ops.lookup_table import NO_PADDING

LEVELS = 256
"""Values that a byte can take."""


def _infer(table: Spec, ids: Spec) -> Spec:
    require(
        table.rank == 2 and is_float(table.dtype) and table.shape[1] > 2,
        f"W {table} must be a floating point matrix of more than 2 columns",
    )
    require(
        ids.dtype == VarType.INT64 and ids.rank and ids.shape[-1] in (1, -1),
        f"Ids {ids} must be int64 with a last dimension of 1",
    )
    levels = to_numpy(table.dtype).itemsize * (table.shape[1] - 2)
    return table.replace(shape=(*ids.shape[:-1], levels), lod_level=ids.lod_level)


def _table(r: SampleRng, rows: int, columns: int) -> Any:
    """Smallest and largest value per row, and numbers whose bytes are the levels."""
    small = r.normal((rows, 1))
    levels = r.integers(0, 64, (rows, 4 * columns)).astype(np.uint8).view(np.float32)
    return np.concatenate([small, small + r.uniform(0.5, 2.0, (rows, 1)), levels], axis=1)


@op(
    "lookup_table_dequant",
    inputs="W Ids",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample({"W": _table(r, 5, 2), "Ids": r.integers(0, 5, (4, 1))}),
        Sample({"W": _table(r, 3, 1), "Ids": np.array([[0], [2], [1]])}, {"padding_idx": 2}),
        Sample({"W": _table(r, 6, 3), "Ids": r.integers(0, 6, (2, 3, 1))}),
    ],
)
def lookup_table_dequant(xp: Any, table: Any, ids: Any, *, padding_idx: int = NO_PADDING) -> Any:
    """Rows of a table whose rows are (smallest, largest value, a level per byte).

    A level ``b`` stands for ``smallest + b * (largest - smallest) / 256``. Rows of
    ``padding_idx`` read as 0. Source: Paddle op ``lookup_table_dequant``.

    Raises:
        ValueError: there is no such row.
    """
    numbers = ids.reshape(ids.shape[:-1])
    check_rows(xp, numbers, table.shape[0], "Ids")
    rows = table[numbers]
    small, large = rows[..., :1], rows[..., 1:2]
    levels = xp.ascontiguousarray(rows[..., 2:]).view(np.uint8)
    out = levels * ((large - small) / table.dtype.type(LEVELS)) + small
    if padding_idx != NO_PADDING:
        out = fill_rows(xp, out, numbers == padding_idx, 0)
    return out
