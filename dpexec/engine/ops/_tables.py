"""What the operators that work by a rank table share: specs, and sequences that are picked out."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Spec, require
from dpexec.engine.ops._sequences import rows_of

Ints = np.ndarray[Any, Any]


def require_table(table: Spec) -> None:
    """Refuse what is no rank table."""
    require(table.kind == VarType.LOD_RANK_TABLE, f"RankTable must be one, but it is {table}")


def levels_of(x: Spec, lod: Spec | None) -> int:
    """How many levels of sequences a variable has: as declared, or as the offsets of a run say."""
    return x.lod_level if lod is None else lod.rank


def offsets(levels: int) -> Spec | None:
    """The spec of offsets of which only a run knows how many there are; None for no levels."""
    return Spec((-1,) * levels, VarType.INT64, VarType.RAW) if levels else None


def some_rows(x: Spec, running: bool) -> Spec:
    """As ``x``, with rows that only a run knows; a program shows those of ``x``, as fluid does.

    Args:
        x: the input.
        running: whether it is known what is fed.
    """
    return x.replace(shape=(-1, *x.shape[1:])) if running else x


def picked(lod: Lod, numbers: Ints) -> tuple[Lod, Ints]:
    """Some sequences of the coarsest level, in any order; of a tensor without sequences, rows.

    Args:
        lod: the offsets.
        numbers: of the sequences.

    Returns:
        Their offsets, and the numbers of their rows.
    """
    levels = []
    for level in lod.levels:
        starts = level[numbers]
        lengths = level[numbers + 1] - starts
        levels.append(np.concatenate([[0], np.cumsum(lengths)]))
        numbers = rows_of(starts, lengths)
    return Lod(levels), numbers
