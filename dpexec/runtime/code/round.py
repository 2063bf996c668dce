"""The code of a stretch of operators, and what calls it on the arrays of a round."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.core.dtypes import to_numpy
from dpexec.ir.sizes import Counts, Rows, at
from dpexec.ir.spec import Spec
from dpexec.kernels.located import locate
from dpexec.kernels.lowering import Buffer, Value
from dpexec.kernels.machine import run
from dpexec.runtime.binding import aligned
from dpexec.runtime.code.deferred import Refused
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
        own: names of results that no other operator of the block reads or writes.
    """

    def __init__(
        self,
        code: StretchCode,
        piece: Piece,
        inputs: Mapping[str, Spec],
        counts: Counts,
        own: Collection[str],
    ) -> None:
        table, buffers = piece.table, list(code.task.lasting)
        late = table.late(counts)
        nowhere = np.zeros(len(buffers), np.int64)
        words = table.words(counts, late, code.memory.ctypes.data, nowhere)
        pairs = np.array(_places(piece, list(inputs)), np.int64)
        self._dtypes = [np.dtype(to_numpy(spec.dtype)) for spec in inputs.values()]
        self._made = [_form(piece, buffer, counts) for buffer in buffers]
        self._nbytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self._made)
        self._results = [_result(value, buffers, self._made, counts) for value in _values(piece)]
        numbers = [number for _, number, _ in self._results]
        self._summable = [
            (number, name)
            for name, number, view in self._results
            if view is None
            and name in own
            and numbers.count(number) == 1
            and self._made[number][1] == np.float32
        ]
        self._first = len(words) + 3  # of the arrays' identities
        end = self._first + len(inputs) + len(buffers)
        array = np.zeros(end, np.int64)
        start = array.ctypes.data
        array[: self._first] = *words, len(pairs), start, pairs.ctypes.data
        looking_up = np.array([[locate.address, start + 8 * len(words)]], np.int64)
        self._table = np.concatenate([looking_up, table.rows(start)])
        self._numbers = [number_of for _, number_of in table.numbers]
        places = [*range(self._first, end), *(position for position, _ in table.numbers)]
        self._positions = np.array(places, np.int64)
        addresses = self._positions.ctypes.data, start, len(self._table), self._table.ctypes.data
        description = np.array([len(places), *addresses], np.int64)
        self._address = description.ctypes.data
        self._pack = struct.Struct(f"{1 + len(places)}q").pack_into
        self._words = array
        self._kept = code, description, pairs, late  # words are addresses
        self._looks = any(value.channels_last for value in _values(piece))
        self._operators = [
            (steps[0].node.name, end - piece.first + 1) for steps, end in piece.steps
        ]

    def run(self, env: Env, arrays: list[Any], refused: Refused) -> None:
        """Compute what the operators do, or put it off.

        Args:
            env: gets the results.
            arrays: the inputs.
            refused: called if a kernel refuses the values.

        Raises:
            BodyError: an operator refused its values.
        """
        for index, dtype in enumerate(self._dtypes):
            array = arrays[index]
            if array.dtype is not dtype or not array.flags.c_contiguous:
                env.deferred.finish()
                arrays[index] = np.ascontiguousarray(array, dtype)
        deferred = env.deferred
        totals = deferred.totals
        summed = {number: totals[name] for number, name in self._summable if name in totals}
        made = [
            summed[number].room(*form) if number in summed else np.empty(*form)
            for number, form in enumerate(self._made)
        ]
        words = [self._address, *map(id, arrays), *map(id, made)]
        if self._numbers:
            words += [word_of(number_of(env.shard)) for number_of in self._numbers]
        if env.record is None:
            deferred.code(self._pack, words, self._nbytes, refused, (arrays, made, self))
            if self._looks:
                deferred.finish()
        else:
            self._recorded(words[1:], env, arrays, refused)
        if summed:
            taken = [(total.take(made[number]), made[number]) for number, total in summed.items()]
            pairs = [pair for pair in taken if pair[0] is not None]
            if pairs:  # none in the first round
                deferred.add_each(pairs)
        for name, number, view in self._results:
            if number not in summed:
                env[name] = made[number] if view is None else view(made)

    def _recorded(
        self, words: Sequence[int], env: Env, arrays: list[Any], refused: Refused
    ) -> None:
        """Run one operator after another, and tell what each takes."""
        assert env.record is not None
        env.deferred.finish()  # sums of what is overwritten now
        self._words[self._positions] = words
        row = 0
        for name, end in self._operators:
            start = time.perf_counter()
            row = run(self._table, row, end)
            env.record(name, start, time.perf_counter())
            if row != end:
                refused(env, arrays)


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
