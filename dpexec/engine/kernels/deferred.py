"""What loops put off: pieces of code with other arrays every time, and copies and sums of arrays.

Arrays are told by their identities (:mod:`dpexec.engine.kernels.located`).
"""

from __future__ import annotations

import numpy as np

from dpexec.engine.kernels.collectives import USUAL
from dpexec.engine.kernels.located import FIELD
from dpexec.engine.kernels.machine import call, count, floats, integers, kernel, set_float_mode

__all__ = ["add", "copy", "play"]


@kernel
def play(p: int) -> int:
    """Run a piece of code.

    Arguments: the address of its description, words that are other ones for other shapes, and then
    those that are other ones every time. The description: how many words the latter are, their
    positions, the words, rows of the table, the table, how many words the former are, their
    positions.
    """
    piece, varying = count(p, 0), integers(p, 1)
    positions, words, table = integers(piece, 1), integers(piece, 2), integers(piece, 4)
    for i in range(count(piece, 0)):
        words[positions[i]] = count(p, 2 + i)
    positions = integers(piece, 6)
    for i in range(count(piece, 5)):
        words[positions[i]] = varying[i]
    for row in range(0, 2 * count(piece, 3), 2):
        if call(table[row], table[row + 1]) != 0:
            return 1
    return 0


@kernel
def copy(p: int) -> int:
    """Copy an array of float32. Arguments: how many numbers, where to, where from."""
    n, out, x = count(p, 0), floats(count(p, 1), FIELD), floats(count(p, 2), FIELD)
    for i in range(n):
        out[i] = x[i]
    return 0


@kernel
def add(p: int) -> int:
    """Add arrays of float32 to others, with the bits of NumPy, which keeps denormal numbers.

    Arguments: how many pairs; for each, how many numbers, what is added to, what is added.
    """
    before = set_float_mode(np.int32(USUAL))
    for pair in range(1, 1 + 3 * count(p, 0), 3):
        total, x = floats(count(p, pair + 1), FIELD), floats(count(p, pair + 2), FIELD)
        for i in range(count(p, pair)):
            total[i] += x[i]
    set_float_mode(before)
    return 0
