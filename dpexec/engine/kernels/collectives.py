"""Sums over devices that share memory."""

from __future__ import annotations

import numpy as np

from dpexec.engine.kernels.machine import count, floats, integers, kernel, set_float_mode

__all__ = ["USUAL", "add", "join"]

USUAL = 0x1F80
"""The usual mode of x86, see ``machine.run``: denormal numbers are numbers."""


@kernel
def add(p: int) -> int:
    """``out = a + b``, float32, with the bits of NumPy, which keeps denormal numbers.

    Arguments: how many numbers, out, a, b.
    """
    n, out, a, b = count(p, 0), floats(p, 1), floats(p, 2), floats(p, 3)
    before = set_float_mode(np.int32(USUAL))
    for i in range(n):
        out[i] = a[i] + b[i]
    set_float_mode(before)
    return 0


@kernel
def join(p: int) -> int:
    """Put the rows of a device behind those of others.

    Arguments: 0 for the first device, elements of a row, how many rows there is room for, row
    numbers, values, how many, and the same of the result.
    """
    before, width, room = count(p, 0), count(p, 1), count(p, 2)
    rows, value, n = integers(p, 3), floats(p, 4), integers(p, 5)[0]
    out_rows, out, total = integers(p, 6), floats(p, 7), integers(p, 8)
    start = total[0] if before else 0
    if start + n > room:
        return 1
    for i in range(n):
        out_rows[start + i] = rows[i]
    for i in range(n * width):
        out[start * width + i] = value[i]
    total[0] = start + n
    return 0
