"""Where NumPy arrays lie: that is looked up in the arrays' own objects.

To ask an array for its address takes Python two microseconds (``array.ctypes``), which is as much
as a small operator takes; its identity is known at once, and is the address of an object that has
the array's address as its first field.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dpexec.engine.kernels.machine import Count, Integers, Rest, integers, kernel

__all__ = ["FIELD", "OF_ADDRESS", "address", "locate", "word_at"]

FIELD = object.__basicsize__ // 8
"""The word of an array's object that has its address."""

OF_ADDRESS = 8 * FIELD
"""Where in an array's object its address is, in bytes."""

word_at = ctypes.c_ssize_t.from_address
"""The word at an address."""


def address(array: np.ndarray[Any, Any]) -> int:
    """Where an array begins.

    Args:
        array: the array; it must live as long as the address is used.
    """
    return word_at(id(array) + OF_ADDRESS).value


@kernel
def locate(n: Count, words: Integers, pairs: Integers, arrays: Rest) -> int:
    """Write the addresses of arrays where other kernels expect them.

    Arguments: how many words to write, the words, pairs of (position of a word, number of an
    array), and then the identities of the arrays.
    """
    for pair in range(0, 2 * n, 2):
        words[pairs[pair]] = integers(arrays, pairs[pair + 1])[FIELD]
    return 0
