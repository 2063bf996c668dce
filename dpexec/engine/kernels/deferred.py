"""Deferred work of loops: pieces of code on new arrays every round, copies and sums of arrays.

Arrays are identified by the addresses of their Python objects
(:mod:`dpexec.engine.kernels.located`).
"""

from __future__ import annotations

import numpy as np

from dpexec.engine.kernels.collectives import USUAL
from dpexec.engine.kernels.located import FIELD
from dpexec.engine.kernels.machine import (
    Count,
    Integers,
    Rest,
    call,
    count,
    floats,
    integers,
    kernel,
)
from dpexec.engine.kernels.tables import set_float_mode

__all__ = ["add", "copy", "play"]


@kernel
def play(piece: Count, varying: Integers, moving: Rest) -> int:
    """Run a piece of code.

    Arguments: the address of its description; the words that depend on shapes; then the words that
    differ in every call. The description has: number of the words that differ in every call, their
    positions; all words; number of rows of the table, the table; number of the words that depend on
    shapes, their positions.
    """
    positions, words, table = integers(piece, 1), integers(piece, 2), integers(piece, 4)
    for i in range(count(piece, 0)):
        words[positions[i]] = count(moving, i)
    positions = integers(piece, 6)
    for i in range(count(piece, 5)):
        words[positions[i]] = varying[i]
    for row in range(0, 2 * count(piece, 3), 2):
        if call(table[row], table[row + 1]) != 0:
            return 1
    return 0


@kernel
def copy(n: Count, to: Count, source: Count) -> int:
    """Copy an array of float32. Arguments: number of elements, target, source."""
    out, x = floats(to, FIELD), floats(source, FIELD)
    for i in range(n):
        out[i] = x[i]
    return 0


@kernel
def add(pairs: Count, more: Rest) -> int:
    """Add arrays of float32 to others, with the bits of NumPy, which keeps denormal numbers.

    Arguments: number of pairs; for each pair, number of elements, the array that is added to, the
    array that is added.
    """
    before = set_float_mode(np.int32(USUAL))
    for pair in range(0, 3 * pairs, 3):
        total, x = floats(count(more, pair + 1), FIELD), floats(count(more, pair + 2), FIELD)
        for i in range(count(more, pair)):
            total[i] += x[i]
    set_float_mode(before)
    return 0
