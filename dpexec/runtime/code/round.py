"""The code of a stretch of operators, and what calls it on the arrays of a round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.core.dtypes import to_numpy
from dpexec.ir.sizes import Counts, Rows, at
from dpexec.ir.spec import Spec
from dpexec.kernels.located import locate
from dpexec.kernels.lowering import Buffer, Value
from dpexec.kernels.machine import run
from dpexec.runtime.binding import aligned
from dpexec.runtime.code.table import word_of
from dpexec.runtime.code.task import Piece, TaskCode
from dpexec.runtime.env import Env
from dpexec.runtime.steps import Step

__all__ = ["Fit", "StretchCode"]


_Array = np.ndarray[Any, Any]
_Form = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of an array."""


class StretchCode:
    """The code of a stretch, for all numbers of rows that behave alike.

    Args:
        steps: the operators.
        specs: of all values.
        results: names whose values are needed outside.
        rows: the numbers that are left open; None: none are.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        specs: Mapping[str, Spec],
        results: frozenset[str],
        rows: Rows | None,
    ) -> None:
        self.rows = rows
        self.task = TaskCode(specs, results, (), {}, fetched=results)
        self.task.take(steps)
        self.task.layout()
        self.memory = aligned(self.task.inner_bytes)

    @property
    def whole(self) -> Piece | None:
        """The code, if all operators could be put together."""
        first = self.task.order[0]
        return first if len(self.task.order) == 1 and isinstance(first, Piece) else None

    @property
    def pieces(self) -> list[int]:
        """For every operator, which piece of code does it; -1: none."""
        numbers = {
            id(step): number
            for number, item in enumerate(self.task.order)
            if isinstance(item, Piece)
            for steps, _ in item.steps
            for step in steps
        }
        return [numbers.get(id(step), -1) for step in self.task.steps]


class Fit:
    """Code for inputs of some shapes, called on the arrays of one round after another.

    Args:
        code: the code.
        piece: all of it.
        inputs: the values that come from outside, by name.
        counts: the numbers of rows that the code left open.
    """

    def __init__(
        self, code: StretchCode, piece: Piece, inputs: Mapping[str, Spec], counts: Counts
    ) -> None:
        table, buffers = piece.table, list(code.task.lasting)
        late = table.late(counts)
        nowhere = np.zeros(len(buffers), np.int64)
        words = table.words(counts, late, code.memory.ctypes.data, nowhere)
        pairs = np.array(_places(piece, list(inputs)), np.int64)
        self._dtypes = [np.dtype(to_numpy(spec.dtype)) for spec in inputs.values()]
        self._made = [_form(piece, buffer, counts) for buffer in buffers]
        self._results = [_result(value, buffers, self._made, counts) for value in _values(piece)]
        self._first = len(words) + 3  # of the arrays' identities
        array = np.zeros(self._first + len(inputs) + len(buffers), np.int64)
        start = array.ctypes.data
        array[: self._first] = *words, len(pairs), start, pairs.ctypes.data
        looking_up = np.array([[locate.address, start + 8 * len(words)]], np.int64)
        self._table = np.concatenate([looking_up, table.rows(start)])
        self._kept = code, array, pairs, late  # words are addresses
        self._words = memoryview(array.data)  # written to much faster than an array
        self._numbers = table.numbers
        self._operators = [
            (steps[0].node.name, end - piece.first + 1) for steps, end in piece.steps
        ]

    def run(self, env: Env, arrays: list[Any]) -> bool:
        """Compute what the operators do.

        Args:
            env: gets the results.
            arrays: the inputs.

        Returns:
            Whether all kernels took the values.
        """
        words, at_word = self._words, self._first
        for index, dtype in enumerate(self._dtypes):
            array = arrays[index]
            if array.dtype is not dtype or not array.flags.c_contiguous:
                array = arrays[index] = np.ascontiguousarray(array, dtype)
            words[at_word] = id(array)
            at_word += 1
        made = [np.empty(shape, dtype) for shape, dtype in self._made]
        for array in made:
            words[at_word] = id(array)
            at_word += 1
        for position, number_of in self._numbers:
            words[position] = word_of(number_of(env.shard))
        end = len(self._table)
        if (run(self._table, 0, end) if env.record is None else self._recorded(env.record)) != end:
            return False
        for name, number, view in self._results:
            env[name] = made[number] if view is None else view(made)
        return True

    def _recorded(self, note: Callable[[str, float, float], None]) -> int:
        """Run one operator after another, and tell what each takes."""
        row = 0
        for name, end in self._operators:
            start = time.perf_counter()
            row = run(self._table, row, end)
            note(name, start, time.perf_counter())
            if row != end:
                break
        return row


def _places(piece: Piece, reads: Sequence[str]) -> list[tuple[int, int]]:
    """Where the addresses of arrays go: position of the word, number of the array."""
    table = piece.table
    inputs = {value.name: found for value, found in table.brought.items()}
    pairs = [(at, number) for number, name in enumerate(reads) for at in inputs.get(name, ())]
    return pairs + [(at, len(reads) + number) for at, number in table.results]


def _values(piece: Piece) -> list[Value]:
    return [value for _, value in piece.published if isinstance(value, Value)]


def _form(piece: Piece, buffer: Buffer, counts: Counts) -> _Form:
    """Shape and type of the array for a buffer: those of a value that fills it."""
    for value in _values(piece):
        if value.buffer is buffer and value.nbytes == buffer.nbytes and not value.channels_last:
            return _closed(value, counts)
    return (at(buffer.nbytes, counts),), np.dtype(np.uint8)


def _result(
    value: Value, buffers: Sequence[Buffer], forms: Sequence[_Form], counts: Counts
) -> tuple[str, int, Callable[[Sequence[_Array]], _Array] | None]:
    """Name of a value, and the number of the array that it is, or what gives it by all arrays."""
    shape, dtype = _closed(value, counts)
    if value.buffer not in buffers:  # it is empty, and no kernel needs it
        return value.name, -1, lambda made: np.empty(shape, dtype)
    number = buffers.index(value.buffer)
    if value.channels_last:
        batch, channels, *size = shape
        return (
            value.name,
            number,
            lambda made: np.ascontiguousarray(
                np.moveaxis(np.ndarray((batch, *size, channels), dtype, made[number]), -1, 1)
            ),
        )
    if (shape, dtype) == forms[number]:
        return value.name, number, None
    return value.name, number, lambda made: np.ndarray(shape, dtype, made[number])


def _closed(value: Value, counts: Counts) -> _Form:
    return tuple(at(size, counts) for size in value.shape), value.dtype
