"""``lod_rank_table`` and ``max_sequence_len``: sequences by their lengths, the longest first."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod, LoDRankTable
from dpexec.engine.ir.opdef import Spec, op, require
from dpexec.engine.ops._tables import levels_of, require_table


def _infer(x: Spec, lod: Spec | None, *, level: int = 0) -> Spec:
    """The shape of a table is the number of rows, and that of their sequences' offsets."""
    levels = levels_of(x, lod)  # 0 if declared without sequences, although some may be fed
    require(
        0 <= level < (levels or level + 1),
        f"X has {levels} levels of sequences, but level is {level}",
    )
    if lod is None:
        return Spec((), kind=VarType.LOD_RANK_TABLE)
    size = (x.shape[0], lod.shape[level]) if level == lod.rank - 1 else ()
    return Spec(size, kind=VarType.LOD_RANK_TABLE, lod_level=level)


@op("lod_rank_table", inputs="X X@LOD", infer=_infer, no_grad=True)
def lod_rank_table(xp: Any, x: Any, lod: Lod, *, level: int = 0) -> LoDRankTable:
    """The sequences of a level with their lengths, the longest first.

    Source: Paddle op ``lod_rank_table``.
    """
    return LoDRankTable.of(lod, level)


def _infer_length(table: Spec) -> Spec:
    require_table(table)
    return Spec((1,), VarType.INT64)


@op(
    "max_sequence_len",
    inputs="RankTable",
    infer=_infer_length,
    no_grad=True,
    makes_numbers=True,
    shape_inputs="RankTable",
)
def max_sequence_len(xp: Any, table: LoDRankTable) -> Any:
    """The length of the longest sequence, int64 ``(1,)``.

    Source: Paddle op ``max_sequence_len``.
    """
    return xp.full(1, int(table.lengths[0]) if table else 0, np.int64)
