"""Sums over devices, or processes, that share memory."""

from __future__ import annotations

import numpy as np

from dpexec.engine.kernels.atomics import load, store
from dpexec.engine.kernels.machine import count, floats, integers, kernel, octets, set_float_mode

__all__ = ["USUAL", "add", "copy", "join", "place", "post"]

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


@kernel
def copy(p: int) -> int:
    """``out = x``, bytes.

    Arguments: how many bytes, out, x.
    """
    out, x = octets(p, 1), octets(p, 2)
    for i in range(count(p, 0)):
        out[i] = x[i]
    return 0


@kernel
def post(p: int) -> int:
    """Tell other processes that what comes before has been done in this step.

    Arguments: the word that they wait for, the number of the step.
    """
    store(count(p, 0), load(count(p, 1)))
    return 0


@kernel
def place(p: int) -> int:
    """Put the rows of a device where they belong among those of the devices of all processes.

    Arguments: how many devices there are, which of them this is, elements of a row, how many rows
    there is room for, row numbers, values, row numbers and values of the result, how many rows that
    has (a result), and for every device where it says how many rows it has.
    """
    devices, mine, width, room = count(p, 0), count(p, 1), count(p, 2), count(p, 3)
    rows, value = integers(p, 4), floats(p, 5)
    out_rows, out, total = integers(p, 6), floats(p, 7), integers(p, 8)
    start = end = n = 0
    for device in range(devices):
        if device == mine:
            start, n = end, integers(p, 9 + device)[0]
        end += integers(p, 9 + device)[0]
    if end > room:
        return 1
    for i in range(n):
        out_rows[start + i] = rows[i]
    for i in range(n * width):
        out[start * width + i] = value[i]
    total[0] = end
    return 0
