"""Updates that work on copies of variables, and make these copies on the way."""

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
"""The calls of an item: addresses of kernels, and positions of their arguments."""


class _Call(NamedTuple):
    """A call that comes after the point from which on copies may be overwritten.

    Args:
        at: position of its first argument among the words.
        table: the calls of its item.
        row: its row in the table.
        kernel: the called kernel.
        arguments: the arguments of the call.
        writes: names of the variables that its operator writes.
    """

    at: int
    table: _Table
    row: int
    kernel: Kernel
    arguments: Sequence[Any]
    writes: frozenset[str]

    @property
    def copies(self) -> Sequence[int]:
        """Positions of the arguments that it can copy before it overwrites them."""
        return self.kernel.each or self.kernel.rows


class CopyingCalls:
    """Calls of a step that copy what they overwrite, see :mod:`dpexec.engine.kernels.copying`.

    Operators that read a variable before such a call overwrites its copy read the original.

    Args:
        words: the arguments of all calls of the step; the list still grows.

    Attributes:
        records: for each call that changes rows of a table, the numbers of these rows. The first
            number of a record says whether copy and original differ in these rows alone.
    """

    def __init__(self, words: list[int]) -> None:
        self.records: list[np.ndarray[Any, Any]] = []
        self._words = words
        self._calls: list[_Call] = []
        self._inner: list[tuple[int, int]] = []  # word that takes an address, word at that address

    def note(self, table: _Table, code: CodeRun) -> None:
        """Remember the calls that were just appended to a table; they update or read copies.

        Args:
            table: the calls of an item.
            code: the piece of code that was appended.
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
            copied: the copies that the step overwrites.
            original: gives the original of a copy.

        Returns:
            The copies that no call can make, which have to be made before all these calls.
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
        """The position of a copy among the arguments of a call; None if the call cannot copy it."""
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
        """Rows and width of a table, a new record's address, where the call has row numbers."""
        rows, held = map(call.kernel.position, ("rows", "held"))
        record = np.zeros(2 + at_most(call.arguments[rows].size), np.int64)
        self.records.append(record)
        return [table.shape[0], prod(table.shape[1:]), record.ctypes.data, rows, held]

    def place(self, words: np.ndarray[Any, Any]) -> None:
        """Write where the arguments lie of calls that are called by others.

        Args:
            words: all arguments, at their final address.
        """
        for position, at in self._inner:
            words[position] = words.ctypes.data + 8 * at


def shared_out(copied: Sequence[Outside], threads: int) -> list[list[Outside]]:
    """Divide copies among threads, the largest first.

    Args:
        copied: the copies to make.
        threads: how many threads there are.

    Returns:
        The copies of each thread; an empty list if there is nothing to copy.
    """
    parts: list[list[Outside]] = [[] for _ in range(threads if copied else 0)]
    for source in sorted(copied, key=lambda source: -source.value.nbytes):
        min(parts, key=lambda part: sum(s.value.nbytes for s in part)).append(source)
    return parts
