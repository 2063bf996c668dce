"""Where NumPy arrays lie: machine code looks it up in the arrays' own objects.

To ask an array for its address takes Python two microseconds (``array.ctypes``), which is as much
as a small operator takes; its identity is known at once, and is the address of an object that has
the array's address as its first field.
"""

from __future__ import annotations

from dpexec.kernels.machine import count, integers, kernel

__all__ = ["locate"]

_FIELD = object.__basicsize__ // 8


@kernel
def locate(p: int) -> int:
    """Write the addresses of arrays where other kernels expect them.

    Arguments: how many words to write, the words, pairs of (position of a word, number of an
    array), and then the identities of the arrays.
    """
    words, pairs = integers(p, 1), integers(p, 2)
    for pair in range(0, 2 * count(p, 0), 2):
        words[pairs[pair]] = integers(p, 3 + pairs[pair + 1])[_FIELD]
    return 0
