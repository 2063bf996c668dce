"""Sums over devices, or processes, that share memory."""

from __future__ import annotations

import numpy as np

from dpexec.engine.core.reductions import SUM
from dpexec.engine.kernels.atomics import load, store
from dpexec.engine.kernels.machine import Count, Floats, Integers, Octets, Rest, integers, kernel
from dpexec.engine.kernels.tables import set_float_mode

__all__ = ["COMBINE", "USUAL", "add", "copy", "join", "place", "post"]

USUAL = 0x1F80
"""The usual mode of x86, see ``tables.run``: denormal numbers are numbers."""


@kernel
def add(n: Count, out: Floats, a: Floats, b: Floats) -> int:
    """``out = a + b``, float32, with the bits of NumPy, which keeps denormal numbers.

    Arguments: how many numbers, out, a, b.
    """
    before = set_float_mode(np.int32(USUAL))
    for i in range(n):
        out[i] = a[i] + b[i]
    set_float_mode(before)
    return 0


COMBINE = {SUM: add}
"""By reduction, the kernel that combines two float32 arrays, with the arguments of :func:`add`."""


@kernel
def join(
    before: Count, width: Count, room: Count, rows: Integers, value: Floats, held: Integers,
    out_rows: Integers, out: Floats, total: Integers,
) -> int:  # fmt: skip
    """Append the rows of a device to those of the devices before it.

    Arguments: 0 for the first device; elements of a row; the most rows of the result; row numbers,
    values, and number of rows of the device; the same of the result.
    """
    n = held[0]
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
def copy(n: Count, out: Octets, x: Octets) -> int:
    """``out = x``, bytes.

    Arguments: how many bytes, out, x.
    """
    for i in range(n):
        out[i] = x[i]
    return 0


@kernel
def post(word: Count, number: Count) -> int:
    """Tell other processes that this process has come to a certain point of the step.

    Arguments: the word that they wait for, address of the number of the step.
    """
    store(word, load(number))
    return 0


@kernel
def place(
    devices: Count, mine: Count, width: Count, room: Count, rows: Integers, value: Floats,
    out_rows: Integers, out: Floats, total: Integers, held: Rest,
) -> int:  # fmt: skip
    """Put the rows of a device into a sum, at their place among the rows of all processes.

    Arguments: number of devices; position of this device among them (-1: none); elements of a row;
    the most rows of the result; row numbers and values of the device; row numbers and values of the
    result; its number of rows, which is written; and for every device the address of its number of
    rows.
    """
    start = end = n = 0
    for device in range(devices):
        if device == mine:
            start, n = end, integers(held, device)[0]
        end += integers(held, device)[0]
    if end > room:
        return 1
    for i in range(n):
        out_rows[start + i] = rows[i]
    for i in range(n * width):
        out[start * width + i] = value[i]
    total[0] = end
    return 0
