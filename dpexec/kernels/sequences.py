"""Sums and maxima over sequences: all of them in one call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.core.lod import Lod
from dpexec.kernels.calls import run_call
from dpexec.kernels.located import address
from dpexec.kernels.machine import Kernel, count, floats, integers, kernel, words
from dpexec.kernels.math import apart
from dpexec.ops import _sequences as on_arrays

__all__ = ["maxima", "sums"]

_Array = np.ndarray[Any, Any]


@apart
def _add(sequences: int, width: int, offsets: Any, x: Any, out: Any) -> None:
    for sequence in range(sequences):
        o = sequence * width
        for j in range(width):
            out[o + j] = 0
        for row in range(offsets[sequence], offsets[sequence + 1]):
            i = row * width
            for j in range(width):
                out[o + j] += x[i + j]


@kernel
def _sums(p: int) -> int:
    """The sum of the rows of every sequence.

    Arguments: sequences, width of rows, offsets, rows, sums.
    """
    _add(count(p, 0), count(p, 1), integers(p, 2), floats(p, 3), floats(p, 4))
    return 0


@apart
def _choose(sequences: int, width: int, offsets: Any, x: Any, out: Any, rows: Any) -> None:
    for sequence in range(sequences):
        o, first = sequence * width, offsets[sequence]
        empty = first == offsets[sequence + 1]
        for j in range(width):
            out[o + j] = 0 if empty else x[first * width + j]
            rows[o + j] = -1 if empty else first
        for row in range(first + 1, offsets[sequence + 1]):
            i = row * width
            for j in range(width):
                new, old = x[i + j], out[o + j]
                greater = (new > old) | ((new != new) & (old == old))  # or the first that is none
                out[o + j] = new if greater else old
                rows[o + j] = np.int32(row) if greater else rows[o + j]


@kernel
def _maxima(p: int) -> int:
    """The greatest numbers of every sequence, and the rows that have them.

    Arguments: sequences, width of rows, offsets, rows, greatest numbers, their rows.
    """
    _choose(count(p, 0), count(p, 1), integers(p, 2), floats(p, 3), floats(p, 4), words(p, 5))
    return 0


def _run(code: Kernel, x: _Array, lod: Lod, *made: _Array) -> None:
    offsets = np.ascontiguousarray(lod.offsets)
    sizes = len(offsets) - 1, math.prod(x.shape[1:])
    run_call((code, (*sizes, *map(address, (offsets, x, *made)))))


def _known(x: _Array) -> bool:
    """Whether there are kernels for these rows."""
    return x.dtype == np.float32 and x.flags.c_contiguous


def sums(xp: Any, x: _Array, lod: Lod) -> _Array:
    """What :func:`dpexec.ops._sequences.sequence_sums` computes."""
    if not _known(x):
        made: _Array = on_arrays.sequence_sums(xp, x, lod)
        return made
    out = np.empty((len(lod.offsets) - 1, *x.shape[1:]), x.dtype)
    _run(_sums, x, lod, out)
    return out


def maxima(xp: Any, x: _Array, lod: Lod) -> tuple[_Array, _Array]:
    """What :func:`dpexec.ops._sequences.greatest_rows` computes."""
    if not _known(x):
        made: tuple[_Array, _Array] = on_arrays.greatest_rows(xp, x, lod)
        return made
    out = np.empty((len(lod.offsets) - 1, *x.shape[1:]), x.dtype)
    rows = np.empty(out.shape, np.int32)
    _run(_maxima, x, lod, out, rows)
    return out, rows
