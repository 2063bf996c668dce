"""Calls of kernels that are repeated for every step of sequences, all in one call from Python.

What a kernel gets in a step is a linear function of what a run knows: where its arrays are, and,
for every step, its first row and how many sequences it has. A :class:`Loop` is made once from
these functions, which are vectors of coefficients; a run of it only fills in the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dpexec.kernels.calls import Call, run_call
from dpexec.kernels.located import address
from dpexec.kernels.machine import call, count, integers, kernel

__all__ = ["Loop", "place", "unknowns"]

_Array = np.ndarray[Any, Any]


def unknowns(fixed: int, moving: int) -> tuple[list[_Array], list[_Array]]:
    """What a run will know, to make the arguments of a loop from.

    Args:
        fixed: how many numbers are the same in all steps.
        moving: how many each step has its own of.

    Returns:
        Both kinds, as linear functions of all of them; the first coefficient is the constant.
    """
    _, *known = np.eye(1 + fixed + moving, dtype=np.int64)
    return known[:fixed], known[fixed:]


def place(array: _Array, row: _Array, width: int, column: int = 0) -> _Array:
    """Address of an element of a float32 matrix.

    Args:
        array: where the matrix begins.
        row: number of the row.
        width: of rows.
        column: number of the column.
    """
    found: _Array = array + 4 * width * row
    found[0] += 4 * column
    return found


@kernel
def _repeat(p: int) -> int:
    """Call kernels step after step.

    Arguments: steps, calls of each, how many of them the first step leaves out, table of
    (kernel, arguments), number of words that change from step to step, for each its number, what
    it follows and how often it counts that; the words; what they follow, which has a number for
    each step.
    """
    steps, calls, left_out, table = count(p, 0), count(p, 1), count(p, 2), integers(p, 3)
    changes, words, followed = integers(p, 5), integers(p, 6), integers(p, 7)
    for step in range(steps):
        for i in range(count(p, 4)):
            at = changes[3 * i + 1] * steps + step
            change = followed[at] - followed[at - 1] if step else followed[at]
            words[changes[3 * i]] += changes[3 * i + 2] * change
        for number in range(0 if step else left_out, calls):
            if call(table[2 * number], table[2 * number + 1]) != 0:
                return 1
    return 0


class Loop:
    """Calls of kernels for every step.

    Args:
        calls: of a step; arguments are integers, or functions of what a run knows.
        fixed: how many of the numbers that a run knows are the same in all steps.
    """

    def __init__(self, calls: Sequence[Call], fixed: int) -> None:
        columns = [argument for _, arguments in calls for argument in arguments]
        functions = [column for column in columns if isinstance(column, np.ndarray)]
        coefficients = np.zeros((len(functions[0]), len(columns)), np.int64)
        for number, column in enumerate(columns):
            if isinstance(column, np.ndarray):
                coefficients[:, number] = column
            else:
                coefficients[0, number] = column
        self._fixed, moving = coefficients[: fixed + 1], coefficients[fixed + 1 :]
        followed, word = np.nonzero(moving)
        self._changes = np.stack([word, followed, moving[followed, word]], axis=1)
        ends = np.cumsum([len(arguments) for _, arguments in calls])
        self._table = np.zeros((len(calls), 2), np.int64)
        self._table[:, 0] = [kernel.address for kernel, _ in calls]
        self._table[1:, 1] = 8 * ends[:-1]

    def run(self, fixed: Iterable[int], moving: Sequence[_Array], left_out: int = 0) -> None:
        """Make the calls.

        Args:
            fixed: numbers that are the same in all steps.
            moving: for each of the others its number in every step.
            left_out: how many calls of the first step are not made.

        Raises:
            RuntimeError: a kernel fails.
        """
        words = np.array([1, *fixed], np.int64) @ self._fixed
        followed, table = np.array(moving, np.int64), self._table.copy()
        table[:, 1] += address(words)
        sizes = followed.shape[1], len(table), left_out
        changes = len(self._changes), address(self._changes)
        run_call((_repeat, (*sizes, address(table), *changes, address(words), address(followed))))
