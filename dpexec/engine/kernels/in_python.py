"""Rows of a table that call a Python function, for operators that have no machine code."""

from __future__ import annotations

import numpy as np

from dpexec.engine.kernels.collectives import USUAL
from dpexec.engine.kernels.machine import Count, Rest, call, kernel
from dpexec.engine.kernels.tables import set_float_mode

__all__ = ["in_python"]


@kernel
def in_python(function: Count, more: Rest) -> int:
    """Call a C function that takes the GIL and calls Python; NumPy keeps denormal numbers.

    Arguments: address of the function; the arguments whose address it gets.
    """
    before = set_float_mode(np.int32(USUAL))
    status = call(function, more)
    set_float_mode(before)
    return status
