"""Transposition of matrices, and with it the conversion of images to channels-last layout and back.

Convolution, batch norm and operators between them work on channels-last images, which is several
times faster than on separate planes.
"""

from __future__ import annotations

from typing import Any

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.machine import Count, Floats, Octets, kernel

__all__ = ["turn", "turn_octets", "turned"]

_ROWS = 16
"""Rows that are transposed together: their columns lie in one cache line of the result. Of 4 to 256
rows, 16 were the fastest in 10 of 13 shapes of images, and 11 times as fast as all rows at once for
8 images of 56 x 56 pixels and 256 channels."""


@inline
def turned(rows: int, columns: int, x: Any, out: Any, first: int) -> None:
    """``out = x.T``; both begin at element ``first``, ``x`` has ``rows`` and ``columns``."""
    whole = rows - rows % _ROWS
    for top in range(0, whole, _ROWS):
        for column in range(columns):
            source, target = first + top * columns + column, first + column * rows + top
            for row in range(_ROWS):
                out[target + row] = x[source + row * columns]
    for column in range(columns):
        for row in range(whole, rows):
            out[first + column * rows + row] = x[first + row * columns + column]


@kernel(parts="times:out*rows*columns x*rows*columns")
def turn(times: Count, rows: Count, columns: Count, x: Floats, out: Floats) -> int:
    """Transpose matrices. Arguments: times, rows, columns, source, target."""
    for i in range(times):
        turned(rows, columns, x, out, i * rows * columns)
    return 0


@kernel(parts="times:out*rows*columns x*rows*columns")
def turn_octets(times: Count, rows: Count, columns: Count, x: Octets, out: Octets) -> int:
    """Transpose matrices of numbers of 8 bits. Arguments as for :func:`turn`."""
    for i in range(times):
        turned(rows, columns, x, out, i * rows * columns)
    return 0
