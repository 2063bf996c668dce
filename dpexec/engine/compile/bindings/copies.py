"""Updates of copies: calls that copy what they are to overwrite themselves."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.bindings.outside import Outside
from dpexec.engine.compile.regions.code_run import CodeRun
from dpexec.engine.ir.sizes import at_most
from dpexec.engine.kernels import copying
from dpexec.engine.kernels.lowering import Value
from dpexec.engine.kernels.machine import Kernel

__all__ = ["CopyingCalls", "shared_out"]

_Table = list[tuple[int, int]]
"""Of an item: addresses of kernels, and positions of their arguments."""


class _Call(NamedTuple):
    """A call behind the point from which on copies may be overwritten.

    Args:
        at: position of its first argument among the words.
        table: of its item.
        row: where it stands there.
        kernel: what is called.
        arguments: with which arguments.
        writes: names of what its operator writes.
    """

    at: int
    table: _Table
    row: int
    kernel: Kernel
    arguments: Sequence[Any]
    writes: frozenset[str]

    @property
    def copies(self) -> Sequence[int]:
        """Which of its arguments it can copy, if they are copies."""
        return self.kernel.each or self.kernel.rows


class CopyingCalls:
    """Calls of a step that copy what they overwrite, see :mod:`dpexec.engine.kernels.copying`.

    What operators read before one of these calls overwrites it, they read where it was.

    Args:
        words: the arguments of all calls of the step, which grow.

    Attributes:
        records: of calls that change rows of tables, which these were; the first number says
            whether copies differ from their originals in these rows alone.
    """

    def __init__(self, words: list[int]) -> None:
        self.records: list[np.ndarray[Any, Any]] = []
        self._words = words
        self._calls: list[_Call] = []
        self._inner: list[tuple[int, int]] = []  # positions of addresses of words, and of these

    def note(self, table: _Table, code: CodeRun) -> None:
        """Calls were put at the end of a table, that update copies or read them.

        Args:
            table: that.
            code: the calls.
        """
        calls = code.made_by.calls
        row = len(table) - len(calls)
        first = 0
        for steps, end in code.parts:
            writes = frozenset(var.name for step in steps for var in step.node.outputs)
            for kernel, arguments in calls[first:end]:
                at = table[row][1]
                self._calls.append(_Call(at, table, row, kernel, arguments, writes))
                row += 1
            first = end

    def take(
        self, copied: Sequence[Outside], original: Callable[[Outside], Outside]
    ) -> list[Outside]:
        """Let calls copy what they overwrite.

        Args:
            copied: what is to be copied.
            original: gives what something is a copy of.

        Returns:
            What has to be copied before all of these calls.
        """
        starts = [call.at for call in self._calls]
        taken: dict[int, list[tuple[int, Outside]]] = {}
        left: list[Outside] = []
        for source in copied:
            source.positions.sort()
            number = self._overwriting(source, starts)
            found = None if number is None else self._argument(self._calls[number], source)
            if number is None or found is None:
                left.append(source)
                continue
            taken.setdefault(number, []).append((found, source))
            before = [at for at in source.positions if at < starts[number]]
            if before:
                original(source).positions.extend(before)
                source.positions = source.positions[len(before) :]
        for number, copies in taken.items():
            self._wrap(self._calls[number], [(at, original(source)) for at, source in copies])
        return left

    def _overwriting(self, source: Outside, starts: Sequence[int]) -> int | None:
        """The first call of the operator that overwrites a copy first; None: there is none."""
        calls = (bisect_right(starts, position) - 1 for position in source.positions)
        return next((n for n in calls if n >= 0 and source.name in self._calls[n].writes), None)

    def _argument(self, call: _Call, source: Outside) -> int | None:
        """Which argument of a call is some copy; None if the call cannot copy it."""
        positions = (position - call.at for position in source.positions)
        found = [position for position in positions if 0 <= position < len(call.arguments)]
        return found[0] if len(found) == 1 and found[0] in call.copies else None

    def _wrap(self, call: _Call, copies: Sequence[tuple[int, Outside]]) -> None:
        """Let a call copy some of its arguments."""
        each, words = call.kernel.each, self._words
        kernel = copying.in_blocks if each else copying.of_rows
        at = len(words)
        self._inner.append((at + 1, call.at))
        words += [call.kernel.address, 0]
        if each:
            words += [copying.BLOCK, len(each), len(copies), *each]
        else:
            words += [*self._rows(call, copies[0][1].value), len(copies)]
        for position, source in copies:
            source.positions.append(len(words) + 1)
            words += [position, 0]
        call.table[call.row] = kernel.address, at

    def _rows(self, call: _Call, table: Value) -> list[int]:
        """Shape of a table, a new record of the rows that change, and where their numbers are."""
        rows, held = map(call.kernel.position, ("rows", "held"))
        record = np.zeros(2 + at_most(call.arguments[rows].size), np.int64)
        self.records.append(record)
        return [table.shape[0], prod(table.shape[1:]), record.ctypes.data, rows, held]

    def place(self, words: np.ndarray[Any, Any]) -> None:
        """Tell calls where the arguments of others are, which they call.

        Args:
            words: all arguments, where they stay.
        """
        for position, at in self._inner:
            words[position] = words.ctypes.data + 8 * at


def shared_out(copied: Sequence[Outside], threads: int) -> list[list[Outside]]:
    """What each of some threads copies; none if there is nothing to copy.

    Args:
        copied: what is to be copied.
        threads: how many there are.
    """
    parts: list[list[Outside]] = [[] for _ in range(threads if copied else 0)]
    for source in sorted(copied, key=lambda source: -source.value.nbytes):
        min(parts, key=lambda part: sum(s.value.nbytes for s in part)).append(source)
    return parts
