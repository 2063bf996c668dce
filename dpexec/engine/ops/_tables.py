"""Shared code of operators with a rank table: specs, and selection of sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Spec, require
from dpexec.engine.ops._sequences import rows_of

Ints = np.ndarray[Any, Any]


def first_name(slots: Mapping[str, Sequence[str]], slot: str) -> str:
    """The first variable of a slot; "" if it has none."""
    return next(iter(slots.get(slot, ())), "")


def require_table(table: Spec) -> None:
    """Check that a variable is a rank table."""
    require(table.kind == VarType.LOD_RANK_TABLE, f"RankTable must be one, but it is {table}")


def levels_of(x: Spec, lod: Spec | None) -> int:
    """The number of a variable's levels of sequences: from its offsets in a run, or as declared."""
    return x.lod_level if lod is None else lod.rank


def offsets(levels: int) -> Spec | None:
    """The spec of offsets whose number is known only at run time; None without levels."""
    return Spec((-1,) * levels, VarType.INT64, VarType.RAW) if levels else None


def some_rows(x: Spec, running: bool) -> Spec:
    """Like ``x``, but with an unknown number of rows; in programs the rows of ``x``, as in fluid.

    Args:
        x: the input.
        running: whether the fed shapes are known.
    """
    return x.replace(shape=(-1, *x.shape[1:])) if running else x


def picked(lod: Lod, numbers: Ints) -> tuple[Lod, Ints]:
    """Select sequences of the coarsest level, or rows of a tensor without sequences, in any order.

    Args:
        lod: the offsets.
        numbers: numbers of the sequences.

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
