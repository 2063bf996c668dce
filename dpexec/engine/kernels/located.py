"""Addresses of NumPy arrays, read from the arrays' Python objects.

Getting the address in Python (``array.ctypes``) takes two microseconds, as long as a small operator
runs. Getting ``id(array)`` is fast: it is the address of the Python object, whose first field is
the address of the data.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dpexec.engine.kernels.machine import Count, Integers, Rest, integers, kernel

__all__ = ["FIELD", "OF_ADDRESS", "address", "locate", "word_at"]

FIELD = object.__basicsize__ // 8
"""Position of the address of the data in an array's object, in words."""

OF_ADDRESS = 8 * FIELD
"""The same position in bytes."""

word_at = ctypes.c_ssize_t.from_address
"""The word at an address."""


def address(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's data.

    Args:
        array: the array; it must live as long as the address is used.
    """
    return word_at(id(array) + OF_ADDRESS).value


@kernel
def locate(n: Count, words: Integers, pairs: Integers, arrays: Rest) -> int:
    """Write the addresses of arrays into the arguments of other kernels.

    Arguments: how many words to write; the words; pairs of (position of a word, number of an
    array); then the identities of the arrays.
    """
    for pair in range(0, 2 * n, 2):
        words[pairs[pair]] = integers(arrays, pairs[pair + 1])[FIELD]
    return 0
