"""The words and arrays of a step of code that depend on the number of rows of its batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.bindings.native import SizedArguments
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.regions.code_run import CodeRun
from dpexec.engine.compile.regions.operands import AnyValue
from dpexec.engine.compile.regions.table import CodeTable, word_of
from dpexec.engine.ir.sizes import Counts, Rows
from dpexec.engine.kernels.machine import Count, Integers, kernel
from dpexec.engine.kernels.tables import run

__all__ = ["Computed", "OpenParts", "SizeWriter"]

Computed = tuple[AnyValue, list[np.ndarray[Any, Any]]]
"""A value that code computes, and where its parts lie."""


@kernel
def _write(changes: Count, slopes: Count, sizes: Integers, rows: Integers, words: Integers) -> int:
    """Write the words that are sizes.

    Arguments: how many such words there are; how many slopes each has; position, device, offset and
    slopes of each; for every device as many numbers of rows as there are slopes; the words.
    """
    width = 3 + slopes
    for i in range(0, width * changes, width):
        size = sizes[i + 2]
        for j in range(slopes):
            size += sizes[i + 3 + j] * rows[sizes[i + 1] * slopes + j]
        words[sizes[i]] = size
    return 0


class OpenParts:
    """The words and arrays that differ between numbers of rows."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, ...]] = []
        """Position, device, offset and slopes of every word that is a size."""
        self.tables: list[tuple[int, CodeTable]] = []
        """The tables with arguments that are made for certain numbers of rows, with their task."""
        self.made: list[int] = []
        """Positions of the words of these arguments."""
        self._arrays: dict[tuple[int, str], tuple[CodeRun, AnyValue]] = {}

    def take(self, task: Task, code: CodeRun, first: int) -> None:
        """Add a piece of code.

        Args:
            task: the task that it belongs to.
            code: the piece of code.
            first: position of its first word among the words of the step.
        """
        device, table = task.device, code.made_by
        assert device is not None
        self.sizes += [(first + at, device, s.offset, *s.slopes) for at, s in table.sizes]
        if table.made:
            self.tables.append((task.id, table))
            self.made += [first + at for at in table.made]
        for name, value, _ in code.published:
            if any(Rows.of(*part.shape) for part in value.parts):
                self._arrays[device, name] = code, value
            else:
                self.forget(device, name)

    def forget(self, device: int, name: str) -> None:
        """Note that the value of a name now has the same shape for all numbers of rows."""
        self._arrays.pop((device, name), None)

    def varies(self, device: int, name: str) -> bool:
        """Whether the shape of a device's value depends on the number of rows."""
        return (device, name) in self._arrays

    def value(self, device: int, name: str, rows: Sequence[Counts]) -> Computed:
        """A value whose shape depends on the number of rows, and the arrays of its parts.

        Args:
            device: the device that has the value.
            name: of the value.
            rows: the numbers of rows of every device's batch.
        """
        code, value = self._arrays[device, name]
        return value, code.place.arrays(value, rows[device])


class SizeWriter:
    """Writes the words of a step that depend on the number of rows.

    Args:
        parts: these words.
        words: all words of the step.
        rows: the numbers of rows of every device's batch; empty: nothing depends on them.
    """

    def __init__(
        self,
        parts: OpenParts,
        words: np.ndarray[Any, np.dtype[np.int64]],
        rows: Sequence[Counts],
    ) -> None:
        self._tables, self._made = parts.tables, parts.made
        self._words = words
        self._sizes = np.array(parts.sizes, np.int64)
        self._rows = np.array(rows, np.int64)
        addresses = [array.ctypes.data for array in (self._sizes, self._rows, words)]
        slopes = self._rows.shape[-1]
        self._arguments = np.array([len(parts.sizes), slopes, *addresses], np.int64)
        self._table = np.array([[_write.address, self._arguments.ctypes.data]], np.int64)
        self._table_at: int = self._table.ctypes.data

    def write(self, rows: Sequence[Counts], sized: SizedArguments) -> None:
        """Write the words for certain numbers of rows.

        Args:
            rows: the numbers of rows of every device's batch.
            sized: the arguments that were made for them.
        """
        self._rows[:] = rows
        run(self._table_at, 0, 1)
        if self._made:
            found = [word_of(made) for task, table in self._tables for made in sized[task][table]]
            self._words[self._made] = found
