"""Sums over devices that share memory."""

from __future__ import annotations

import numpy as np

from dpexec.kernels.machine import _float_mode, count, floats, kernel

__all__ = ["add"]

_USUAL = 0x1F80


@kernel
def add(p: int) -> int:
    """``out = a + b``, float32, with the bits of NumPy, which keeps denormal numbers.

    Arguments: how many numbers, out, a, b.
    """
    n, out, a, b = count(p, 0), floats(p, 1), floats(p, 2), floats(p, 3)
    before = _float_mode(np.int32(_USUAL))
    for i in range(n):
        out[i] = a[i] + b[i]
    _float_mode(before)
    return 0
