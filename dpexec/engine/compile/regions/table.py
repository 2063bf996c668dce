"""The calls of a piece of code as words, which can be filled in for any memory and size."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.sizes import Counts, Quotient, Size
from dpexec.engine.kernels.lowering import Argument, Buffer, Sized, Value
from dpexec.engine.kernels.machine import Kernel
from dpexec.engine.kernels.together import compile_together

__all__ = ["CodeTable", "word_of"]


class CodeTable:
    """Kernels and their arguments.

    Args:
        calls: kernels and arguments.
        inner: where each buffer begins in the block that only this code uses.
        lasting: numbers of the buffers that are needed outside of the task.

    Attributes:
        calls: kernels and arguments.
        numbers: positions of words that depend on the run, and the functions that give them.
        brought: values from outside, and the positions of the words that take their addresses.
        sizes: positions of words that are open sizes, and these sizes.
        made: positions of words for arguments that :meth:`sized` makes.
    """

    def __init__(
        self,
        calls: Sequence[tuple[Kernel, Sequence[Argument]]],
        inner: Mapping[Buffer, int],
        lasting: Mapping[Buffer, int],
    ) -> None:
        self.calls = calls  # constants live as long
        self._inner, self._lasting = inner, lasting
        self.numbers: list[tuple[int, Callable[[Any], Any]]] = []
        self.brought: dict[Value, list[int]] = {}
        self.sizes: list[tuple[int, Size]] = []
        self.made: list[int] = []
        self._sized: list[Sized | Quotient] = []
        self._called: dict[int, Kernel] = {}  # by position of a word, kernels that kernels call
        self._inside: list[int] = []  # positions of addresses in the block of this code
        self._outside: tuple[list[int], list[int]] = ([], [])  # positions, numbers of the buffers
        words: list[int] = []
        starts: list[int] = []
        for _, arguments in calls:
            starts.append(len(words))
            for argument in arguments:
                word = argument if type(argument) is int else self._word(len(words), argument)
                words.append(word)
        self._fixed = np.array(words, np.int64)
        self._starts = 8 * np.array(starts, np.int64)

    def _word(self, position: int, argument: Any) -> int:
        """The part of a word that does not depend on memory, sizes and the run."""
        if isinstance(argument, Value):
            return self._address(position, argument)
        if isinstance(argument, Size):
            self.sizes.append((position, argument))
            return 0
        if isinstance(argument, Sized | Quotient):
            self.made.append(position)
            self._sized.append(argument)
            return 0
        if isinstance(argument, Kernel):
            self._called[position] = argument
            return 0
        if callable(argument):
            self.numbers.append((position, argument))
            return 0
        return word_of(argument)

    def _address(self, position: int, value: Value) -> int:
        buffer = value.buffer
        if buffer is None:
            self.brought.setdefault(value, []).append(position)
            return 0
        if buffer in self._lasting:
            self._outside[0].append(position)
            self._outside[1].append(self._lasting[buffer])
            return 0
        self._inside.append(position)
        return self._inner.get(buffer, 0)

    @property
    def results(self) -> list[tuple[int, int]]:
        """Positions of the addresses of lasting buffers, with the buffers' numbers."""
        return list(zip(*self._outside, strict=True))

    def sized(self, rows: Counts) -> list[Any]:
        """Arguments that are made for certain numbers of rows, such as primitives of oneDNN.

        Args:
            rows: the numbers of rows of the device's batch.

        Raises:
            NeedsNumber: these numbers of rows need more memory than others.
        """
        return [argument.at(rows) for argument in self._sized]

    def words(
        self, rows: Counts, sized: Sequence[Any], inner: int, lasting: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """All words.

        Args:
            rows: the numbers of rows of the device's batch.
            sized: the result of :meth:`sized` for them.
            inner: address of the block that only this code uses.
            lasting: addresses of the buffers that are needed outside of the task.
        """
        made = self._fixed.copy()
        for position, kernel in self._compiled.items():
            made[position] = kernel.address
        if self.sizes:
            places, slopes, offsets = self._linear
            made[places] = slopes @ np.array(rows) + offsets
        for position, word in zip(self.made, map(word_of, sized), strict=True):
            made[position] = word
        made[self._inside] += inner
        positions, numbers = self._outside
        made[positions] = lasting[numbers]
        return made

    def rows(self, words: int) -> np.ndarray[Any, Any]:
        """The table for :func:`dpexec.engine.kernels.tables.run`.

        Args:
            words: address of the words.

        Returns:
            int64 ``(calls, 2)``: address of the kernel, address of its arguments.
        """
        return self._rows + np.array([0, words])

    @functools.cached_property
    def _rows(self) -> np.ndarray[Any, Any]:
        """The rows for words at 0."""
        _ = self._compiled
        addresses = [kernel.address for kernel, _ in self.calls]
        return np.column_stack([np.array(addresses, np.int64), self._starts])

    @functools.cached_property
    def _compiled(self) -> dict[int, Kernel]:
        """The kernels that kernels call; all are compiled."""
        compile_together([*(kernel for kernel, _ in self.calls), *self._called.values()])
        return self._called

    @functools.cached_property
    def _linear(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Positions, slopes and offsets of the words that are open sizes."""
        positions = [position for position, _ in self.sizes]
        slopes = [size.slopes for _, size in self.sizes]
        offsets = [size.offset for _, size in self.sizes]
        return np.array(positions), np.array(slopes), np.array(offsets)


def word_of(number: Any) -> int:
    """A number as a word of 64 bits: a float's bits, or the value of anything else as an int."""
    return int(np.float64(number).view(np.int64)) if isinstance(number, float) else int(number)
