"""The code of a region of operators, and its calls on the arrays of a round."""

from __future__ import annotations

import itertools
import math
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.regions.deferred import Refused
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.memory import aligned
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.compile.regions.table import word_of
from dpexec.engine.compile.regions.task import Piece, TaskCode
from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.ir.sizes import Counts, Rows, Size
from dpexec.engine.ir.spec import Spec
from dpexec.engine.kernels.located import address, locate
from dpexec.engine.kernels.lowering import Buffer, Value
from dpexec.engine.kernels.tables import run

__all__ = ["OpenRegion", "RegionCode", "SizedRegion"]


_Array = np.ndarray[Any, Any]
_Form = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of an array."""


class RegionCode:
    """The code of a region, for a range of numbers of rows.

    Args:
        steps: the operators.
        specs: of all values.
        results: names whose values are needed outside of the region.
        rows: the range of the numbers of rows that are left open; None: all sizes are known.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        specs: Mapping[str, Spec],
        results: frozenset[str],
        rows: Rows | None,
    ) -> None:
        self.rows = rows
        self.task = TaskCode(specs, results, (), {}, fetched=results, ragged=False)
        self.task.take(steps)
        self.task.layout()
        self.memory = aligned(self.task.inner_bytes)

    @property
    def whole(self) -> Piece | None:
        """The code, if one piece has all operators; else None."""
        first = self.task.order[0]
        return first if len(self.task.order) == 1 and isinstance(first, Piece) else None

    @property
    def pieces(self) -> list[int]:
        """For every operator, the number of its piece of code; -1: it is not code."""
        numbers = {
            id(step): number
            for number, item in enumerate(self.task.order)
            if isinstance(item, Piece)
            for steps, _ in item.steps
            for step in steps
        }
        return [numbers.get(id(step), -1) for step in self.task.steps]


class OpenRegion:
    """The code of a region, for all inputs whose shapes differ only in the open numbers of rows.

    Args:
        code: the code of the region.
        piece: the piece that has all its operators.
        inputs: the values that come from outside, by name.
        counts: numbers of rows of a batch, for which it is tried.
        own: names of results that no other operator of the block reads or writes.
    """

    def __init__(
        self,
        code: RegionCode,
        piece: Piece,
        inputs: Mapping[str, Spec],
        counts: Counts,
        own: Collection[str],
    ) -> None:
        self.sized, table, buffers = piece.table.sized, piece.table, list(code.task.lasting)
        self.dtypes = [np.dtype(to_numpy(spec.dtype)) for spec in inputs.values()]
        values, self.own = _values(piece), own
        self.results = [(v, buffers.index(v.buffer) if v.buffer in buffers else -1) for v in values]
        filling = [_filling(values, buffer) for buffer in buffers]
        self.made_dtypes = [dtype for _, dtype in filling]
        self.made_shapes = Shapes([shape for shape, _ in filling])
        self.shapes = Shapes([value.shape for value in values])
        self.sizes = Shapes([[size for _, size in table.sizes]])
        self.looks = any(value.channels_last for value in values)
        self.numbers = [number_of for _, number_of in table.numbers]
        self.operators = [(steps[0].node.name, end - piece.first + 1) for steps, end in piece.steps]
        nowhere = np.zeros(len(buffers), np.int64)
        words = table.words(counts, table.sized(counts), address(code.memory), nowhere)
        self._lay_out(piece, words, list(inputs), len(buffers))
        self._kept = code  # words are addresses

    def _lay_out(self, piece: Piece, words: Any, inputs: Sequence[str], made: int) -> None:
        """Make the description that :func:`dpexec.engine.kernels.deferred.play` reads."""
        table, first = piece.table, len(words) + 3  # of the arrays' identities
        end = first + len(inputs) + made
        self.words = np.zeros(end, np.int64)
        start, pairs = address(self.words), np.array(_places(piece, inputs), np.int64)
        self.words[:first] = *words, len(pairs), start, address(pairs)
        looking_up = np.array([[locate.address, start + 8 * len(words)]], np.int64)
        self.table = np.concatenate([looking_up, table.rows(start)])
        numbers, sizes = ([position for position, _ in t] for t in (table.numbers, table.sizes))
        self.positions = np.array([*range(first, end), *numbers], np.int64)
        self.varying = np.array([*sizes, *table.made], np.int64)
        self.description = np.array(
            [
                *(len(self.positions), address(self.positions), start),
                *(len(self.table), address(self.table)),
                *(len(self.varying), address(self.varying)),
            ],
            np.int64,
        )
        self.pack = struct.Struct(f"{2 + len(self.positions)}q").pack_into
        self._pairs = pairs


class Shapes:
    """Shapes that depend on numbers of rows, which one product of integers computes.

    Args:
        shapes: their dimensions are open sizes or integers.
    """

    def __init__(self, shapes: Sequence[Sequence[Any]]) -> None:
        sizes = [size for shape in shapes for size in shape]
        rows = Rows.of(*sizes)
        self._slopes = np.zeros((len(sizes), 0 if rows is None else len(rows.example)), np.int64)
        self._offsets = np.zeros(len(sizes), np.int64)
        for number, size in enumerate(sizes):
            if isinstance(size, Size):
                self._slopes[number], self._offsets[number] = size.slopes, size.offset
            else:
                self._offsets[number] = size
        ends = list(itertools.accumulate(map(len, shapes)))
        self._parts = [slice(end - len(s), end) for end, s in zip(ends, shapes, strict=True)]

    def flat(self, counts: Counts) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The dimensions of all shapes, one after another, for certain numbers of rows."""
        if not self._slopes.shape[1]:
            return self._offsets
        found: np.ndarray[Any, np.dtype[np.int64]] = self._slopes @ np.array(counts) + self._offsets
        return found

    def at(self, counts: Counts) -> list[tuple[int, ...]]:
        """The shapes for certain numbers of rows."""
        sizes = self.flat(counts).tolist()
        return [tuple(sizes[part]) for part in self._parts]


class SizedRegion:
    """A region's code for certain numbers of rows, called on the arrays of every round.

    Args:
        fits: the code for open numbers of rows.
        counts: the numbers of rows.

    Attributes:
        dtypes: types of the inputs.
        first: addresses of the description of the code, and of the words that depend on sizes.
        results: name, number of the buffer, shape and type of each result; a buffer below 0 stands
            for an empty result.

    Raises:
        NeedsNumber: these numbers of rows need more memory than others.
    """

    def __init__(self, fits: OpenRegion, counts: Counts) -> None:
        self._sized = fits.sized(counts)
        sizes = fits.sizes.flat(counts)
        self._varying = np.concatenate([sizes, np.array([*map(word_of, self._sized)], np.int64)])
        self._made = list(zip(fits.made_shapes.at(counts), fits.made_dtypes, strict=True))
        self._nbytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self._made)
        shapes = fits.shapes.at(counts)
        self._results = [
            _result(value, number, shape, self._made)
            for (value, number), shape in zip(fits.results, shapes, strict=True)
        ]
        self.results = [
            (value.name, number, shape, value.dtype)
            for (value, number), shape in zip(fits.results, shapes, strict=True)
        ]
        numbers = [number for _, number, _ in self._results]
        self._summable = [
            (number, name)
            for name, number, view in self._results
            if view is None
            and name in fits.own
            and numbers.count(number) == 1
            and self._made[number][1] == np.float32
        ]
        self._fits, self.dtypes = fits, fits.dtypes
        self.first = address(fits.description), address(self._varying)

    @property
    def plain(self) -> bool:
        """Whether the same words are right in every round, and results are arrays as they lie."""
        return not (self._fits.numbers or self._fits.looks)

    @property
    def made(self) -> list[int]:
        """The bytes of its buffers."""
        return [math.prod(shape) * dtype.itemsize for shape, dtype in self._made]

    def run(self, env: Env, arrays: list[Any], refused: Refused) -> None:
        """Do the work of the operators, or put it off.

        Args:
            env: gets the results.
            arrays: the inputs.
            refused: called if a kernel refuses the values.

        Raises:
            BodyError: an operator refused its values.
        """
        for index, dtype in enumerate(self.dtypes):
            array = arrays[index]
            if array.dtype != dtype or not array.flags.c_contiguous:
                env.deferred.finish()
                arrays[index] = np.ascontiguousarray(array, dtype)
        deferred = env.deferred
        totals = deferred.totals
        summed = {number: totals[name] for number, name in self._summable if name in totals}
        made = [
            summed[number].room(*form) if number in summed else np.empty(*form)
            for number, form in enumerate(self._made)
        ]
        fits = self._fits
        words = [*self.first, *map(id, arrays), *map(id, made)]
        if fits.numbers:
            words += [word_of(number_of(env.shard)) for number_of in fits.numbers]
        if env.record is None:
            deferred.code(fits.pack, words, self._nbytes, refused, (arrays, made, self))
            if fits.looks:
                deferred.finish()
        else:
            self._recorded(words[2:], env, arrays, refused)
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
        """Run one operator after another, and record the time of each."""
        assert env.record is not None
        env.deferred.finish()  # waiting sums read arrays that are overwritten now
        fits = self._fits
        fits.words[fits.positions] = words
        fits.words[fits.varying] = self._varying
        row = 0
        for name, end in fits.operators:
            start = time.perf_counter()
            row = run(address(fits.table), row, end)
            env.record(name, start, time.perf_counter())
            if row != end:
                refused(env, arrays)


def _places(piece: Piece, reads: Sequence[str]) -> list[tuple[int, int]]:
    """Position of each word that takes an address, with the number of the array."""
    table = piece.table
    inputs = {value.name: found for value, found in table.brought.items()}
    pairs = [(at, number) for number, name in enumerate(reads) for at in inputs.get(name, ())]
    return pairs + [(at, len(reads) + number) for at, number in table.results]


def _values(piece: Piece) -> list[Value]:
    return [value for _, value in piece.published if isinstance(value, Value)]


def _filling(values: Sequence[Value], buffer: Buffer) -> tuple[Sequence[Any], np.dtype[Any]]:
    """Shape and type of the array for a buffer: those of a value that fills it."""
    for value in values:
        if value.buffer is buffer and value.nbytes == buffer.nbytes and not value.channels_last:
            return value.shape, value.dtype
    return (buffer.nbytes,), np.dtype(np.uint8)


def _result(
    value: Value, number: int, shape: tuple[int, ...], forms: Sequence[_Form]
) -> tuple[str, int, Callable[[Sequence[_Array]], _Array] | None]:
    """Name of a value, the number of its array, and a function that makes the value of all arrays.

    The function is None where the value is the array itself.
    """
    dtype = value.dtype
    if number < 0:  # it is empty, and no kernel needs it
        return value.name, number, lambda made: np.empty(shape, dtype)
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
