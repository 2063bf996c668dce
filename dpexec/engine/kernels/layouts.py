"""Conversion of images between channels-last layout and the operators' declared layout.

Convolution, batch norm and operators between them work on channels-last images, which is several
times faster than on separate planes.
"""

from __future__ import annotations

from dpexec.engine.kernels.machine import Count, Floats, Octets, kernel

__all__ = ["turn", "turn_octets"]


@kernel
def turn(times: Count, rows: Count, columns: Count, x: Floats, out: Floats) -> int:
    """Transpose matrices. Arguments: times, rows, columns, source, target."""
    for i in range(times):
        start = i * rows * columns
        for column in range(columns):
            for row in range(rows):
                out[start + column * rows + row] = x[start + row * columns + column]
    return 0


@kernel
def turn_octets(times: Count, rows: Count, columns: Count, x: Octets, out: Octets) -> int:
    """Transpose matrices of numbers of 8 bits. Arguments as for :func:`turn`."""
    for i in range(times):
        start = i * rows * columns
        for column in range(columns):
            for row in range(rows):
                out[start + column * rows + row] = x[start + row * columns + column]
    return 0
