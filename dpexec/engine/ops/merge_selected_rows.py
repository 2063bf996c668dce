"""``merge_selected_rows`` and ``get_tensor_from_selected_rows``: sparse gradients as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Sample, Spec, op, require


def _infer_merge(x: Spec) -> Spec:
    require(x.kind == VarType.SELECTED_ROWS, f"X {x} must be a SelectedRows")
    return x


@op(
    "merge_selected_rows",
    inputs="X",
    infer=_infer_merge,
    sparse=("X",),
    no_grad=True,
    samples=lambda r: [
        Sample({"X": SelectedRows(np.array([3, 0, 3]), 5, r.normal((3, 2)))}),
        Sample({"X": SelectedRows(np.array([4, 1]), 5, r.normal((2, 3)))}),
        Sample({"X": SelectedRows(np.array([2, 2, 2, 0]), 3, r.normal((4, 1)))}),
    ],
    capturable=True,
)
def merge_selected_rows(xp: Any, x: SelectedRows) -> SelectedRows:
    """The same matrix with sorted, unique rows; unchanged if no row occurs twice.

    Source: Paddle op ``merge_selected_rows``.
    """
    return x.merged(xp) if xp is not np else x.joined(())


def _infer_values(x: Spec) -> Spec:
    require(x.kind == VarType.SELECTED_ROWS, f"X {x} must be a SelectedRows")
    # Declared as Paddle declares it; how many rows there are is not known before the run.
    return x.replace(kind=VarType.LOD_TENSOR)


@op(
    "get_tensor_from_selected_rows",
    inputs="X",
    infer=_infer_values,
    sparse=("X",),
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"X": SelectedRows(np.array([1, 0]), 2, np.array([[1.0, 2.0], [3.0, 4.0]]))},
            expected={"Out": np.array([[1.0, 2.0], [3.0, 4.0]])},
        ),
        Sample({"X": SelectedRows(np.array([2, 0, 2]), 3, r.normal((3, 2)))}),
        Sample({"X": SelectedRows(np.array([0]), 1, r.normal((1, 3)))}),
    ],
    capturable=True,
    precision="gray",
    rows_by_run=True,
)
def get_tensor_from_selected_rows(xp: Any, x: SelectedRows) -> Any:
    """The values of the rows, ``(rows, ...)``, without their numbers.

    Source: Paddle op ``get_tensor_from_selected_rows``.
    """
    return x.value.copy()
