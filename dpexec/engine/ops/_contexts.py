"""Rows of a sequence beside their neighbours: for every row those that lie some steps off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ops._sequences import Ints, rows_of


def shifted(rows: int, step: int) -> tuple[slice, slice]:
    """All rows of a tensor whose neighbour ``step`` rows on is in it, too, and these neighbours."""
    size = max(rows - abs(step), 0)
    return slice(max(-step, 0), max(-step, 0) + size), slice(max(step, 0), max(step, 0) + size)


def ends(lod: Lod, step: int) -> Ints:
    """The rows whose neighbour ``step`` rows on is not in the same sequence."""
    lengths = np.minimum(lod.lengths, abs(step))
    return rows_of(lod.offsets[1:] - lengths if step > 0 else lod.offsets[:-1], lengths)


def steps(start: int, length: int) -> Iterator[tuple[int, int]]:
    """Positions in a context, and how many rows off each lies."""
    return enumerate(range(start, start + length))


def contexts(xp: Any, x: Any, lod: Lod, start: int, length: int, outside: Any = 0) -> Any:
    """For every row those from ``start`` rows on, as many as ``length``.

    Args:
        xp: ``numpy`` or ``cupy``.
        x: ``(rows, width)``.
        lod: its offsets.
        start: how many rows off the first one is; negative before the row itself.
        length: number of rows in a context.
        outside: stands for what is not in the sequence of a row.

    Returns:
        ``(rows, length, width)``.
    """
    made = xp.empty((len(x), length, x.shape[1]), x.dtype)
    for position, step in steps(start, length):
        here, there = shifted(len(x), step)
        made[here, position] = x[there]
        made[xp.asarray(ends(lod, step)), position] = outside
    return made


def contexts_grad(xp: Any, d_contexts: Any, lod: Lod, start: int) -> Any:
    """The gradient of the rows, from that of :func:`contexts`, which is overwritten."""
    grad = xp.zeros((len(d_contexts), d_contexts.shape[2]), d_contexts.dtype)
    for position, step in steps(start, d_contexts.shape[1]):
        here, there = shifted(len(grad), step)
        d_contexts[xp.asarray(ends(lod, step)), position] = 0
        grad[there] += d_contexts[here, position]
    return grad


@dataclass(frozen=True)
class Contexts:
    """How contexts are computed: on arrays, or faster where that is possible.

    Args:
        of_rows: as :func:`contexts`.
        gradient: as :func:`contexts_grad`.
    """

    of_rows: Callable[..., Any]
    gradient: Callable[..., Any]


ON_ARRAYS = Contexts(contexts, contexts_grad)
