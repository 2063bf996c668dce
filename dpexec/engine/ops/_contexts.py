"""Context windows: every row of a sequence together with its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.lod import Lod
from dpexec.engine.ops._sequences import Ints, rows_of


def shifted(rows: int, step: int) -> tuple[slice, slice]:
    """The rows of a tensor that have a neighbour ``step`` rows ahead, and these neighbours."""
    size = max(rows - abs(step), 0)
    return slice(max(-step, 0), max(-step, 0) + size), slice(max(step, 0), max(step, 0) + size)


def ends(lod: Lod, step: int) -> Ints:
    """The rows whose neighbour ``step`` rows ahead is not in the same sequence."""
    lengths = np.minimum(lod.lengths, abs(step))
    return rows_of(lod.offsets[1:] - lengths if step > 0 else lod.offsets[:-1], lengths)


def steps(start: int, length: int) -> Iterator[tuple[int, int]]:
    """The positions in a context, each with its distance in rows."""
    return enumerate(range(start, start + length))


def contexts(xp: Any, x: Any, lod: Lod, start: int, length: int, outside: Any = 0) -> Any:
    """For every row, the ``length`` rows that begin ``start`` rows ahead of it.

    Args:
        xp: ``numpy`` or ``cupy``.
        x: ``(rows, width)``.
        lod: the offsets of ``x``.
        start: distance of the first row; negative for rows before the row itself.
        length: number of rows in a context.
        outside: fills positions outside the row's sequence.

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
    """An implementation of contexts: array operations, or a faster one.

    Args:
        of_rows: a function like :func:`contexts`.
        gradient: a function like :func:`contexts_grad`.
    """

    of_rows: Callable[..., Any]
    gradient: Callable[..., Any]


ON_ARRAYS = Contexts(contexts, contexts_grad)
