"""``lookup_sparse_table``: rows of a table that grows when new ids are looked up."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._rows import last_places
from dpexec.engine.ops._sequences import on_host


def _infer(table: Spec, ids: Spec) -> tuple[Spec, Spec]:
    require(table.kind == VarType.SELECTED_ROWS, f"W {table} must be a SelectedRows")
    require(table.rank == 2, f"W {table} must be a matrix")
    require(ids.dtype == VarType.INT64, f"Ids {ids} must be int64")
    return Spec((ids.size, table.shape[1]), table.dtype, lod_level=ids.lod_level), table


def _samples(r: SampleRng) -> list[Sample]:
    def table(places: int) -> SelectedRows:
        return SelectedRows(np.array([3, 0, 5]), 10, r.normal((places, 2)))

    def column(*numbers: int) -> Any:
        return np.array(numbers).reshape(-1, 1)

    rows = SelectedRows(np.array([3, 0]), 10, np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    return [
        Sample({"W": table(3), "Ids": column(5, 3, 3, 0)}),
        Sample({"W": table(3), "Ids": column(5, 4, 0, 8)}, {"is_test": True}),
        Sample({"W": table(5), "Ids": column(5, 4, 3, 0, 7, 4)}),
        Sample({"W": table(5), "Ids": np.array([7, 3, 2])}, {"padding_idx": 3}),
        Sample(
            {"W": rows, "Ids": column(9, 3, 9)},
            expected={"Out": np.array([[5.0, 6.0], [1.0, 2.0], [5.0, 6.0]])},
        ),
    ]


@op(
    "lookup_sparse_table",
    inputs="W Ids",
    outputs="Out WOut?",
    infer=_infer,
    attrs={"padding_idx": -1, "auto_grown_table": True},
    sparse=("W",),
    grows="W",
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def lookup_sparse_table(
    xp: Any, table: SelectedRows, ids: Any, *, is_test: bool = False
) -> tuple[Any, Any]:
    """Rows of a table by ``ids``, ``(ids, width)``; unknown ids are added to the table.

    The table holds values for more rows than it has numbers. An unknown id permanently takes the
    next free row. ``WOut`` is the table ``W``; programs do not have this output, because Paddle's
    operator writes to its input. With ``is_test`` unknown ids read as 0. Paddle reads neither
    ``padding_idx`` nor ``auto_grown_table``. Source: Paddle op ``lookup_sparse_table``.

    Raises:
        ValueError: an unknown id finds the table full.
    """
    numbers, rows = on_host(ids), on_host(table.row_array)
    places = last_places(rows, numbers)
    if is_test:
        found = table.value.take(xp.asarray(np.maximum(places, 0)), axis=0)
        known = xp.asarray(places >= 0)[:, None]
        return xp.where(known, found, found.dtype.type(0)), table
    new, first = np.unique(numbers[places < 0], return_index=True)
    if len(new):
        rows = np.concatenate([rows, new[np.argsort(first)]])
        if len(rows) > len(table.value):
            raise ValueError(
                f"W is full: it has places for {len(table.value)} rows, but the ids, of which "
                f"{len(new)} are new, need {len(rows)}; with is_test, new ids read as 0"
            )
        table = SelectedRows(xp.asarray(rows), table.height_, table.value)
        places = last_places(rows, numbers)
    return table.value.take(xp.asarray(places), axis=0), table
