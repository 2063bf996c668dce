"""Sequences that lie one after another: what the operators on them share."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.core.lod import Lod
from dpexec.ir.opdef import Spec, require


def sequence_count(lod: Spec | None, unknown: int = -1) -> int:
    """Number of sequences of the finest level.

    Args:
        lod: spec of the offsets; None while a program is built.
        unknown: what to return then.
    """
    return unknown if lod is None or lod.shape[-1] < 0 else lod.shape[-1] - 1


def require_sequences(x: Spec, lod: Spec | None, name: str = "X") -> None:
    """Refuse a variable that was declared without sequences."""
    require(
        lod is not None or x.lod_level > 0,
        f"{name} {x} has no sequences: its lod_level is 0, but must be 1 or more",
    )


def coarser(lod: Spec | None) -> Spec | None:
    """Offsets without their finest level; None if there is no other."""
    return None if lod is None or lod.rank < 2 else lod.replace(shape=lod.shape[:-1])


def per_row(xp: Any, values: Any, lod: Lod) -> Any:
    """A row per sequence, repeated for each of its rows.

    Args:
        xp: NumPy, or what has its interface.
        values: ``(sequences, ...)``.
        lod: offsets; the finest level counts.

    Returns:
        ``(rows, ...)``.
    """
    if xp is np:
        return np.repeat(values, lod.lengths, axis=0)
    return values[xp.asarray(row_owners(lod))]


def row_owners(lod: Lod) -> np.ndarray[Any, Any]:
    """For every row the number of the sequence that it is of."""
    return np.repeat(np.arange(len(lod.lengths)), lod.lengths)


def column(xp: Any, values: np.ndarray[Any, Any], like: Any) -> Any:
    """A number per sequence, in the type of an array, to multiply its rows with.

    Args:
        xp: NumPy, or what has its interface.
        values: ``(sequences,)``.
        like: array of the type and number of dimensions.
    """
    return xp.asarray(values.astype(like.dtype)).reshape(-1, *[1] * (like.ndim - 1))
