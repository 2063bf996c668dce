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
_NUMBERS = 4  # of a step: sequences, first row, places of two states
ONCE = Constant(np.array([1]))
"""For a loop of one step."""


@inline
def _count_running(n: int, offsets: Any, counts: Any) -> int:
    """How many of the sequences are in each step; returns how many steps there are."""
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

    Arguments: sequences, whether steps go from their ends to their begins, how many rows they
    have, offsets; for every step how many sequences it has, and its first row, the
    sequences, the longest first, for every row of the steps that of its sequence, number of steps.
    """
    if offsets[n] != room:
        return 1
    longest = _count_running(n, offsets, counts)
    empty = counts[0] if longest else 0
    for length in range(1, longest + 1):  # where the next sequence of a length goes
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
    """Rows in another order, to which a row may be added.

    Arguments: rows, width, for every row which one it is, rows, result, whether a row is added,
    that row.
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
    """Rows back in their own order. Arguments: rows, width, which one each is, rows, result."""
    for row in range(n):
        i, o = row * width, numbers[row] * width
        for j in range(width):
            out[o + j] = x[i + j]
    return 0


@kernel
def _spread(
    n: Count, width: Count, filled: Integers, order: Integers, x: Floats, out: Floats,
) -> int:  # fmt: skip
    """A row per sequence, the longest first, back in their own order; 0 for empty ones.

    Arguments: sequences, width, how many are not empty, the sequences, rows, result.
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
    """For every row of the steps that of the same sequence in the step before.

    Arguments: number of steps, room for numbers of steps, how many sequences each has and its first
    row, width, rows, what is before the first step, result.
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
    """Where the states before each step are.

    Arguments: number of steps, room for numbers of steps, these numbers, which of them the places
    are, bytes of a row, where the states before the first step are, and those of all steps.
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
        rows: how many rows they have.
        is_reverse: whether steps go from the end of sequences to their begin.

    Attributes:
        moving: how many steps there are; and for each how many sequences it has, its first row, and
            where some states before it are, see :meth:`follow`.
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
            out: the result; None: memory for it is made.
            more: a row that is added to all.
        """
        made = out or self._code.scratch(*values.shape)
        width, added = values.shape[1], (0, 0) if more is None else (1, more)
        self._code.emit(_gather, self._rows, width, self._of_rows, values, made, *added)
        return made

    def scatter(self, values: Value, out: Value) -> None:
        """Rows of the steps back in the order of the sequences."""
        self._code.emit(_scatter, self._rows, values.shape[1], self._of_rows, values, out)

    def first(self, states: Value | None, width: int) -> Value:
        """Initial states, those of the longest sequence first; zeros for none."""
        made = self._code.scratch(self._sequences, width)
        if states is None:
            clear(self._code, made, 0.0)
        else:
            self._code.emit(_gather, self._sequences, width, self._order, states, made, 0, 0)
        return made

    def spread(self, values: Value, out: Value) -> None:
        """A row per sequence, the longest first, back in their own order; 0 for empty ones."""
        sizes = self._sequences, out.shape[1], self.moving[1], self._order
        self._code.emit(_spread, *sizes, values, out)

    def before(self, values: Value, first: Value) -> Value:
        """For every row of the steps that of the same sequence in the step before.

        Args:
            values: rows of the steps.
            first: what is before the first step.
        """
        number, numbers = self.moving
        made = self._code.scratch(*values.shape)
        sizes = number, self._rows, numbers, values.shape[1]
        self._code.emit(_before, *sizes, values, first, made)
        return made

    def follow(self, *states: tuple[Value, Value]) -> None:
        """Find out where states are before each step.

        Args:
            states: those before the first step, and those of all steps; as many as two.
        """
        number, numbers = self.moving
        for which, (first, values) in enumerate(states, _NUMBERS - 2):
            sizes = number, self._rows, numbers, which, 4 * values.shape[1]
            self._code.emit(_places_before, *sizes, first, values)
            self.behind += first, values
