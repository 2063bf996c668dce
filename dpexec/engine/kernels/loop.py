"""Loops of kernel calls over the time steps of sequences, run as a single call.

The arguments of a kernel in a time step are linear functions of numbers known at run time: the
addresses of arrays and, for every step, its first row and its number of sequences. A :class:`Loop`
is made once from these functions, stored as vectors of coefficients; each run only fills in the
numbers. Machine code, or Python outside machine code, calls a loop like any kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.kernels.calls import Call, run_call
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Code, Constant, Value
from dpexec.engine.kernels.machine import Count, Integers, Rest, as_word, call, count, kernel

__all__ = ["Loop", "further", "place", "unknowns"]

_Array = np.ndarray[Any, Any]


def unknowns(fixed: int, moving: int) -> tuple[list[_Array], list[_Array]]:
    """Symbols for the numbers that are known at run time, of which arguments of a loop are made.

    Args:
        fixed: how many numbers are the same in all steps.
        moving: how many numbers differ from step to step.

    Returns:
        Both kinds, as vectors of coefficients of all numbers; the first coefficient is the constant
        term.
    """
    _, *known = np.eye(1 + fixed + moving, dtype=np.int64)
    return known[:fixed], known[fixed:]


def place(array: _Array, row: _Array, width: int, column: int = 0) -> _Array:
    """Address of an element of a float32 matrix.

    Args:
        array: address of the matrix.
        row: number of the row.
        width: elements of a row.
        column: number of the column.
    """
    return further(array + 4 * width * row, column)


def further(array: _Array, elements: int) -> _Array:
    """Address of an element of a float32 array.

    Args:
        array: address of the array.
        elements: number of the element.
    """
    found = array.copy()
    found[0] += 4 * elements
    return found


@kernel
def _repeat(
    steps_there: Integers, back: Count, calls: Count, left_out: Count, kernels: Integers, n: Count,
    coefficients: Integers, moving: Count, changes: Integers, followed: Integers, room: Count,
    words: Integers, same: Count, fixed: Rest,
) -> int:  # fmt: skip
    """Call kernels step after step.

    Arguments: address of the number of steps; whether the last step comes first; number of calls of
    a step; how many of them the first step leaves out; (kernel, position of its arguments) of each
    call; number of words of all arguments; their coefficients of numbers that are the same in all
    steps; number of terms that change from step to step; for each, the position of the word, the
    number that it depends on, and its coefficient; these numbers for every step; the most steps
    there may be; memory for the words and the table; how many numbers are the same in all steps;
    these numbers.
    """
    steps = steps_there[0]
    for i in range(n):
        words[i] = coefficients[i]
    for which in range(same):
        for i in range(n):
            words[i] += count(fixed, which) * coefficients[(1 + which) * n + i]
    for i in range(calls):
        words[n + 2 * i] = kernels[2 * i]
        words[n + 2 * i + 1] = as_word(words) + 8 * kernels[2 * i + 1]
    for number in range(steps):
        step, before = (steps - 1 - number, steps - number) if back else (number, number - 1)
        for i in range(moving):
            row = changes[3 * i + 1] * room
            change = followed[row + step] - (followed[row + before] if number else 0)
            words[changes[3 * i]] += changes[3 * i + 2] * change
        for i in range(0 if number else left_out, calls):
            if call(words[n + 2 * i], words[n + 2 * i + 1]) != 0:
                return 1
    return 0


class Loop:
    """Calls of kernels for every step.

    Args:
        calls: the calls of a step; arguments are integers, or vectors of :func:`unknowns`.
        fixed: how many of the numbers known at run time are the same in all steps.
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
        self._fixed, moving = coefficients[: fixed + 1].copy(), coefficients[fixed + 1 :]
        followed, word = np.nonzero(moving)
        self._changes = np.stack([word, followed, moving[followed, word]], axis=1)
        ends = np.cumsum([len(arguments) for _, arguments in calls])
        self._table = np.zeros((len(calls), 2), np.int64)
        self._table[:, 0] = [kernel.address for kernel, _ in calls]
        self._table[1:, 1] = ends[:-1]
        self._room = len(columns) + self._table.size

    def emit(
        self,
        code: Code,
        fixed: Sequence[Any],
        moving: tuple[Value | Constant, Value],
        left_out: int = 0,
        backwards: bool = False,
        behind: Sequence[Value] = (),
    ) -> None:
        """Emit a call of the whole loop.

        Args:
            code: takes the call.
            fixed: numbers that are the same in all steps; a value stands for its address.
            moving: int64 ``(1,)``, the number of steps; and a matrix with a row for each number
                that differs from step to step (more rows are ignored), and a column for each step.
            left_out: how many calls of the first step are not made.
            backwards: whether the last step comes first.
            behind: values whose addresses are among the numbers of steps.
        """
        words = code.scratch(self._room, dtype=np.int64)
        parts = [Constant(part) for part in (self._table, self._fixed, self._changes)]
        places = *moving, moving[1].shape[1], words
        kernel, arguments = self._call(parts, fixed, places, left_out, backwards)
        code.emit(kernel, *arguments, *behind)

    def run(
        self,
        fixed: Sequence[int],
        moving: Sequence[_Array],
        left_out: int = 0,
        backwards: bool = False,
    ) -> None:
        """Run the loop now.

        Args:
            fixed: numbers that are the same in all steps.
            moving: for each other number, its values in all steps.
            left_out: how many calls of the first step are not made.
            backwards: whether the last step comes first.

        Raises:
            RuntimeError: a kernel refuses its values.
        """
        followed, words = np.array(moving, np.int64), np.empty(self._room, np.int64)
        steps = np.array(followed.shape[1:])
        places = address(steps), address(followed), followed.shape[1], address(words)
        parts = [address(part) for part in (self._table, self._fixed, self._changes)]
        run_call(self._call(parts, fixed, places, left_out, backwards))

    def _call(
        self,
        parts: Sequence[Any],
        fixed: Sequence[Any],
        places: tuple[Any, Any, Any, Any],
        left_out: int,
        backwards: bool,
    ) -> Call:
        """The call of :func:`_repeat` for the loop."""
        (table, coefficients, changes), (steps, followed, room, words) = parts, places
        calls = len(self._table), left_out, table, self._fixed.shape[1], coefficients
        changing = len(self._changes), changes, followed, room, words
        return _repeat, (steps, backwards, *calls, *changing, len(fixed), *fixed)
