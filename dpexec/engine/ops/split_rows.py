"""``split_selected_rows`` and ``split_byref``: blocks of rows, as on parameter servers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Sample, Spec, op, require


def _begins(sections: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(sections, initial=0))[:-1]


def _infer_rows(x: Spec, *, height_sections: Sequence[int] = ()) -> list[Spec]:
    require(x.kind == VarType.SELECTED_ROWS, f"X {x} must be a SelectedRows")
    return [x.replace(shape=(rows, *x.shape[1:])) for rows in height_sections]


@op(
    "split_selected_rows",
    inputs="X",
    outputs="Out[]",
    infer=_infer_rows,
    sparse=("X",),
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"X": SelectedRows(np.array([4, 1, 4]), 6, r.normal((3, 2)))},
            {"height_sections": [2, 4]},
        ),
        Sample(
            {"X": SelectedRows(np.array([5, 0, 2, 3]), 6, r.normal((4, 2)))},
            {"height_sections": [1, 2, 3]},
        ),
        Sample(
            {"X": SelectedRows(np.array([3, 2]), 4, r.normal((2, 3)))}, {"height_sections": [4]}
        ),
    ],
)
def split_selected_rows(
    xp: Any, x: SelectedRows, *, height_sections: Sequence[int] = ()
) -> list[SelectedRows]:
    """Blocks of ``height_sections`` rows of a sparse gradient; rows are counted in each block.

    Source: Paddle op ``split_selected_rows``.
    """
    found = []
    for begin, height in zip(_begins(height_sections), height_sections, strict=True):
        inside = (x.row_array >= begin) & (x.row_array < begin + height)
        found.append(SelectedRows(x.row_array[inside] - begin, height, x.value[inside]))
    return found


def _infer_split(x: Spec, *, sections: Sequence[int] = (), num: int = 0) -> list[Spec]:
    require(
        not sections or x.shape[0] in (-1, sum(sections)),
        f"sections {list(sections)} must be the rows of X {x}",
    )
    require(
        bool(sections) or (num > 0 and x.shape[0] % num == 0),
        f"sections is missing, and X {x} cannot be split into num={num} equal parts",
    )
    rows = _sections(x.shape[0], sections, num)
    return [x.replace(shape=(count, *x.shape[1:]), lod_level=0) for count in rows]


def _sections(rows: int, sections: Sequence[int], num: int) -> Sequence[int]:
    return sections or [rows // num if rows >= 0 else -1] * num


@op(
    "split_byref",
    inputs="X",
    outputs="Out[]",
    infer=_infer_split,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((6, 2))}, {"sections": [2, 4]}),
        Sample({"X": r.normal((6, 2))}, {"num": 3}),
        Sample({"X": r.normal((4,))}, {"sections": [1, 1, 2]}),
    ],
)
def split_byref(xp: Any, x: Any, *, sections: Sequence[int] = (), num: int = 0) -> list[Any]:
    """Blocks of ``sections`` rows, or ``num`` equal ones; views.

    Source: Paddle op ``split_byref``.
    """
    rows = _sections(len(x), sections, num)
    return [x[begin : begin + count] for begin, count in zip(_begins(rows), rows, strict=True)]
