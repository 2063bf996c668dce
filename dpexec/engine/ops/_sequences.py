"""Concatenated sequences: helpers of the operators on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.runs import add_runs, sums_of_runs
from dpexec.engine.ir.opdef import Spec, require
from dpexec.engine.ir.roles import EMPTY

Ints = np.ndarray[Any, Any]
OverSequences = Callable[..., Any]
"""A reduction over the rows of every sequence; on CPUs a faster implementation may replace it."""

_WIDE = 1024
"""Elements per sequence above which one call per sequence is faster than one for all."""


# ---- specs


def sequence_count(lod: Spec | None) -> int:
    """Number of sequences of the finest level; -1 if it is unknown.

    Args:
        lod: spec of the offsets; None while a program is built.
    """
    return -1 if lod is None or lod.shape[-1] < 0 else lod.shape[-1] - 1


def require_sequences(x: Spec, lod: Spec | None, name: str = "X") -> None:
    """Reject a variable that was declared without sequences."""
    require(
        lod is not None or x.lod_level > 0,
        f"{name} {x} has no sequences: its lod_level is 0, but must be 1 or more",
    )


def offsets_spec(sequences: int) -> Spec:
    """The spec of offsets of one level; -1 if the number of sequences is unknown."""
    return Spec((-1 if sequences < 0 else sequences + 1,), VarType.INT64, VarType.RAW)


def offsets_or_lengths(lod: Lod | None, name: str, lengths: str) -> Lod:
    """The offsets of a variable whose lengths slot is empty.

    Args:
        lod: offsets; None, or without levels, if there are no sequences.
        name: slot of the variable.
        lengths: slot of its lengths, for the error message.

    Raises:
        ValueError: there are no sequences either.
    """
    if not lod:
        raise ValueError(f"{name} holds no sequences, so it needs {lengths}, and must be padded")
    return lod


def coarser(lod: Spec | None) -> Spec | None:
    """Offsets without their finest level; None if it is the only level."""
    return None if lod is None or lod.rank < 2 else lod.replace(shape=lod.shape[:-1])


# ---- offsets and row numbers, on the host


def with_finest(lod: Lod, lengths: Ints) -> Lod:
    """The same coarse levels over sequences of other lengths."""
    return Lod([*lod.levels[:-1], np.concatenate([[0], np.cumsum(lengths)])])


def row_owners(lod: Lod) -> Ints:
    """For every row the number of its sequence."""
    return np.repeat(np.arange(len(lod.lengths)), lod.lengths)


def rows_of(starts: Ints, lengths: Ints) -> Ints:
    """The row numbers of pieces, one piece after another.

    Args:
        starts: first row of every piece.
        lengths: number of its rows.
    """
    moves = starts - np.cumsum(lengths) + lengths
    return np.repeat(moves, lengths) + np.arange(lengths.sum())


def at_their_places(names: Sequence[str], lods: Sequence[Lod]) -> list[Lod]:
    """The offsets of all variables of a slot; without levels for variables without sequences.

    Args:
        names: names of the offsets variables, by position; ``EMPTY`` for a variable without
            sequences.
        lods: the offsets of the variables with sequences, in order.
    """
    given = iter(lods)
    return [Lod() if name == EMPTY else next(given) for name in names]


def on_host(array: Any) -> Ints:
    """Copy the numbers of a column or vector to the host."""
    return np.ravel(array if isinstance(array, np.ndarray) else array.get())


# ---- rows


def per_row(xp: Any, values: Any, lod: Lod) -> Any:
    """A row per sequence, repeated for each of its rows.

    Args:
        xp: ``numpy`` or ``cupy``.
        values: ``(sequences, ...)``.
        lod: offsets; the finest level counts.

    Returns:
        ``(rows, ...)``.
    """
    if xp is np:
        return np.repeat(values, lod.lengths, axis=0)
    return values[xp.asarray(row_owners(lod))]


def column(xp: Any, values: Ints, like: Any) -> Any:
    """A number per sequence, in the type of an array, as a factor of its rows.

    Args:
        xp: ``numpy`` or ``cupy``.
        values: ``(sequences,)``.
        like: array of the type and number of dimensions.
    """
    return xp.asarray(values.astype(like.dtype)).reshape(-1, *[1] * (like.ndim - 1))


def sequence_sums(xp: Any, x: Any, lod: Lod) -> Any:
    """The sum of the rows of every sequence, ``(sequences, ...)``."""
    out = xp.zeros((len(lod.lengths), *x.shape[1:]), x.dtype)
    in_rows = len(x) < x.size and x.flags.c_contiguous  # NumPy adds one row after another
    if in_rows and x.size > _WIDE * len(out) and xp is np:
        for row, (start, stop) in zip(out, lod.spans(), strict=True):
            np.add.reduce(x[start:stop], axis=0, out=row)
    elif xp is not np:
        owners = xp.asarray(row_owners(lod))
        add_runs(xp, out, owners, xp.arange(len(x)), owners, x)
    elif x.size:
        filled = lod.lengths > 0
        out[filled] = sums_of_runs(x, lod.offsets[:-1][filled])
    return out


def greatest_rows(xp: Any, x: Any, lod: Lod) -> tuple[Any, Any]:
    """The maxima of every sequence, and the rows that have them.

    Of several rows with the maximum, the first counts. A sequence without rows gets row -1 and an
    undefined maximum.
    """
    index = xp.full((len(lod.lengths), *x.shape[1:]), -1, np.int32)
    for sequence, (start, stop) in enumerate(lod.spans()):
        if start < stop:
            index[sequence] = x[start:stop].argmax(axis=0) + start
    return xp.take_along_axis(x, xp.maximum(index, 0), axis=0), index


def sequence_maxima(xp: Any, x: Any, lod: Lod) -> Any:
    """The maxima of every sequence, ``(sequences, ...)``; the least number for empty sequences."""
    shape, filled = (len(lod.lengths), *x.shape[1:]), lod.lengths > 0
    if xp is np and x.size:
        out = np.full(shape, -np.inf, x.dtype)
        out[filled] = np.maximum.reduceat(x, lod.offsets[:-1][filled], axis=0)
        return out
    wide = xp.full(shape, -np.inf, np.promote_types(x.dtype, np.float32))  # GPUs lack float16 here
    xp.maximum.at(wide, xp.asarray(row_owners(lod)), x)
    return wide.astype(x.dtype, copy=False)
