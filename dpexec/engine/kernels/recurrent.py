"""Time steps through sequences of different lengths, shared by lowered recurrent operators.

The counterpart of :class:`dpexec.engine.ops._steps.Steps`, computed in machine code from the
offsets of a run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.lowering import Code, Constant, Value
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.shapes import clear

__all__ = ["ONCE", "Walk"]

_ZERO = np.float32(0)
_NUMBERS = 4  # numbers of a step: sequences, first row, addresses of two states
ONCE = Constant(np.array([1]))
"""For a loop of one step."""


@inline
def _count_running(n: int, offsets: Any, counts: Any) -> int:
    """Count the sequences that are in each step; returns the number of steps."""
    longest = 0
    for i in range(n):
        longest = max(longest, offsets[i + 1] - offsets[i])
    for step in range(longest):
        counts[step] = 0
    for i in range(n):
        length = offsets[i + 1] - offsets[i]
        if length:
            counts[length - 1] += 1
    for step in range(longest - 2, -1, -1):
        counts[step] += counts[step + 1]
    return longest


@kernel
def _order(
    n: Count, back: Count, room: Count, offsets: Integers, counts: Integers, order: Integers,
    rows: Integers, number: Integers,
) -> int:  # fmt: skip
    """The steps of sequences.

    Arguments: number of sequences; whether steps go from their ends to their begins; number of
    rows; offsets. Results: for every step, its number of sequences, then for every step, its first
    row; the sequences, the longest first; for every row in the order of steps, the row of the
    sequences; number of steps.
    """
    if offsets[n] != room:
        return 1
    longest = _count_running(n, offsets, counts)
    empty = counts[0] if longest else 0
    for length in range(1, longest + 1):  # position of the next sequence of this length
        counts[room + length - 1] = counts[length] if length < longest else 0
    for i in range(n):
        length = offsets[i + 1] - offsets[i]
        if length:
            order[counts[room + length - 1]] = i
            counts[room + length - 1] += 1
        else:
            order[empty] = i
            empty += 1
    row = 0
    for step in range(longest):
        counts[room + step] = row
        for i in range(counts[step]):
            first, end = offsets[order[i]], offsets[order[i] + 1]
            rows[row + i] = end - 1 - step if back else first + step
        row += counts[step]
    number[0] = longest
    return 0


@kernel
def _gather(
    n: Count, width: Count, numbers: Integers, x: Floats, out: Floats, added: Count, more: Floats,
) -> int:  # fmt: skip
    """Rows in another order; one row may be added to each of them.

    Arguments: number of rows, width, for every row the number of its source, rows, result, whether
    a row is added, that row.
    """
    for row in range(n):
        i, o = numbers[row] * width, row * width
        if added:
            for j in range(width):
                out[o + j] = x[i + j] + more[j]
        else:
            for j in range(width):
                out[o + j] = x[i + j]
    return 0


@kernel
def _scatter(n: Count, width: Count, numbers: Integers, x: Floats, out: Floats) -> int:
    """The inverse of :func:`_gather`. Arguments: rows, width, numbers of targets, rows, result."""
    for row in range(n):
        i, o = row * width, numbers[row] * width
        for j in range(width):
            out[o + j] = x[i + j]
    return 0


@kernel
def _spread(
    n: Count, width: Count, filled: Integers, order: Integers, x: Floats, out: Floats,
) -> int:  # fmt: skip
    """Rows of sequences, the longest first, in the order of sequences; 0 for empty sequences.

    Arguments: sequences, width, number of sequences that are not empty, the sequences, the longest
    first, rows, result.
    """
    running = filled[0]
    for row in range(n):
        i, o = row * width, order[row] * width
        for j in range(width):
            out[o + j] = x[i + j] if row < running else _ZERO
    return 0


@kernel
def _before(
    number: Integers, room: Count, counts: Integers, width: Count, x: Floats, first: Floats,
    out: Floats,
) -> int:  # fmt: skip
    """For every row of a step, the row of the same sequence in the step before.

    Arguments: number of steps, the most steps, number of sequences and first row of each step,
    width, rows, initial rows, result.
    """
    for step in range(number[0]):
        o, i = counts[room + step] * width, counts[room + step - 1] * width if step else 0
        for j in range(counts[step] * width):
            out[o + j] = x[i + j] if step else first[j]
    return 0


@kernel
def _places_before(
    number: Integers, room: Count, numbers: Integers, which: Count, nbytes: Count, begin: Count,
    all_steps: Count,
) -> int:  # fmt: skip
    """Write the address of the states before each step.

    Arguments: number of steps, the most steps, the table of the steps' numbers, the row of the
        table for the addresses, bytes of a state, address of the initial states, address of all
        steps' states.
    """
    places = room * which
    for step in range(number[0]):
        before = all_steps + nbytes * numbers[room + step - 1]
        numbers[places + step] = before if step else begin
    return 0


class Walk:
    """The steps of an operator through its sequences.

    Args:
        code: takes the calls.
        lod: offsets of the sequences.
        rows: number of rows of all sequences.
        is_reverse: whether steps go from the end of sequences to their begin.

    Attributes:
        moving: the number of steps; and for each step its number of sequences, its first row, and
            addresses of states before it, see :meth:`follow`.
        behind: these states.
    """

    def __init__(self, code: Code, lod: Value, rows: int, is_reverse: bool) -> None:
        self._code = code
        self._rows, self._sequences = rows, lod.shape[0] - 1
        number, numbers = (
            code.scratch(1, dtype=np.int64),
            code.scratch(_NUMBERS, rows, dtype=np.int64),
        )
        self.moving = number, numbers
        self.behind: list[Value] = []
        self._order = code.scratch(self._sequences, dtype=np.int64)
        self._of_rows = code.scratch(rows, dtype=np.int64)
        made = numbers, self._order, self._of_rows, number
        code.emit(_order, self._sequences, int(is_reverse), rows, lod, *made)

    def gather(self, values: Value, out: Value | None = None, more: Value | None = None) -> Value:
        """Rows of sequences in the order of the steps.

        Args:
            values: the rows.
            out: the result; None: new memory.
            more: a row that is added to all rows.
        """
        made = out or self._code.scratch(*values.shape)
        width, added = values.shape[1], (0, 0) if more is None else (1, more)
        self._code.emit(_gather, self._rows, width, self._of_rows, values, made, *added)
        return made

    def scatter(self, values: Value, out: Value) -> None:
        """Rows of the steps back in the order of the sequences."""
        self._code.emit(_scatter, self._rows, values.shape[1], self._of_rows, values, out)

    def first(self, states: Value | None, width: int) -> Value:
        """Initial states, that of the longest sequence first; zeros if there are none."""
        made = self._code.scratch(self._sequences, width)
        if states is None:
            clear(self._code, made, 0.0)
        else:
            self._code.emit(_gather, self._sequences, width, self._order, states, made, 0, 0)
        return made

    def spread(self, values: Value, out: Value) -> None:
        """Rows of sequences, the longest first, in the order of sequences; 0 for empty ones."""
        sizes = self._sequences, out.shape[1], self.moving[1], self._order
        self._code.emit(_spread, *sizes, values, out)

    def before(self, values: Value, first: Value) -> Value:
        """For every row of a step, the row of the same sequence in the step before.

        Args:
            values: rows of the steps.
            first: the initial rows.
        """
        number, numbers = self.moving
        made = self._code.scratch(*values.shape)
        sizes = number, self._rows, numbers, values.shape[1]
        self._code.emit(_before, *sizes, values, first, made)
        return made

    def follow(self, *states: tuple[Value, Value]) -> None:
        """Compute the addresses of states before each step.

        Args:
            states: up to two pairs of initial states and all steps' states.
        """
        number, numbers = self.moving
        for which, (first, values) in enumerate(states, _NUMBERS - 2):
            sizes = number, self._rows, numbers, which, 4 * values.shape[1]
            self._code.emit(_places_before, *sizes, first, values)
            self.behind += first, values
