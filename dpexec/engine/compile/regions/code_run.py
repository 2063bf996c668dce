"""Pieces of machine code with their memory and arguments, which run as steps of a task."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.regions.bodies import BodyError
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.operands import AnyValue, is_array, plain, result_of
from dpexec.engine.compile.regions.python_row import PythonRow
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.compile.regions.table import CodeTable, word_of
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.sizes import Counts, Rows, at
from dpexec.engine.kernels import tables
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Buffer, Value

__all__ = ["CodeMemory", "CodeRun", "Layout", "Piece", "is_array", "word_of"]


@dataclass(eq=False)
class Piece:
    """Operators that run in one call.

    Args:
        first: number of the first call in the task's code.
        steps: the steps whose work it does, with the number after their last call. Steps that one
            kernel does together share an entry.
        made: the values that it computes, by name.
        brought: the values that come from outside, by name.
        writes: names of the values that it computes or updates in place.
        drops: names whose values nobody needs afterwards.
        table: its calls; set when the places of values are known.
        published: the values that the env gets: those in lasting memory, and empty ones.
    """

    first: int
    steps: list[tuple[list[Step], int]] = field(default_factory=list)
    made: dict[str, AnyValue] = field(default_factory=dict)
    brought: dict[str, AnyValue] = field(default_factory=dict)
    writes: set[str] = field(default_factory=set)
    drops: list[str] = field(default_factory=list)
    table: CodeTable = field(init=False)
    published: list[tuple[str, AnyValue]] = field(default_factory=list)


class Layout(NamedTuple):
    """Where the values of a task's code lie.

    Args:
        places: where each buffer that only this code uses begins.
        numbers: the number of each lasting buffer.
        alone: tells whether no other value that is needed outside of the task shares the memory of
            a value.
        packed: names of variables that are alive until others take their place: code knows them
            by their addresses.
    """

    places: Mapping[Buffer, int]
    numbers: Mapping[Buffer, int]
    alone: Callable[[AnyValue], bool]
    packed: Collection[str]


class CodeMemory:
    """The memory of a task's code.

    Args:
        layout: of the code.
        memory: the arena.
        inner: where the block of this code's own values begins in the arena.
        lasting: where each of the lasting buffers begins.
        rows: the numbers of rows of the device's batch, on which sizes may depend.
        sized: by table, the arguments that were made for these numbers.
    """

    def __init__(
        self,
        layout: Layout,
        memory: np.ndarray[Any, Any],
        inner: int,
        lasting: Sequence[int],
        rows: Counts,
        sized: Mapping[CodeTable, Sequence[Any]],
    ) -> None:
        self.layout = layout
        self.memory = memory
        self.rows, self.sized = rows, sized
        begin = address(memory)
        self.starts = begin + inner, begin + np.array(lasting, np.int64)
        self._inner, self._lasting = inner, lasting

    def arrays(self, value: AnyValue, rows: Counts | None = None) -> list[np.ndarray[Any, Any]]:
        """The memory of all parts of a value that code computes.

        Args:
            value: the value.
            rows: the numbers of rows, if they are not those that this memory was made for.
        """
        count = self.rows if rows is None else rows
        return [self._array(part, count) for part in value.parts]

    def _array(self, value: Value, rows: Counts) -> np.ndarray[Any, Any]:
        assert value.buffer is not None
        shape = [at(size, rows) for size in value.shape]
        start = self._place(value)
        if start is None:
            return np.empty(shape, value.dtype)
        end = start + math.prod(shape) * value.dtype.itemsize
        flat_array = self.memory[start:end].view(value.dtype)
        if not value.channels_last:
            return flat_array.reshape(shape)
        batch, channels, *size = shape
        return np.moveaxis(flat_array.reshape(batch, *size, channels), -1, 1)

    def closed(self, value: Value) -> Value:
        """The value with numbers in place of open sizes."""
        if Rows.of(*value.shape) is None:
            return value
        return replace(value, shape=tuple(at(size, self.rows) for size in value.shape))

    def holds(self, value: Value) -> bool:
        """Whether a value has memory; a value that no kernel needs has none."""
        return self._place(value) is not None

    def _place(self, value: Value) -> int | None:
        """Where a value begins; None if it is empty, or no kernel needs it."""
        assert value.buffer is not None
        number = self.layout.numbers.get(value.buffer)
        if number is not None:
            return self._lasting[number]
        at = self.layout.places.get(value.buffer)
        return None if at is None else self._inner + at


class _Brought:
    """An array that comes from the env, and the words that take its address."""

    __slots__ = ("_size", "_value", "copy", "name", "place", "positions", "seen")

    def __init__(self, value: Value, positions: list[int], place: CodeMemory) -> None:
        self.name = value.name
        self._value = value
        self._size = math.prod(at(size, place.rows) for size in value.shape)
        self.place = place
        self.positions = positions
        self.seen: Any = _nothing  # a weak reference: code keeps no values between runs
        self.copy: Any = None

    @property
    def value(self) -> Value:
        """The value with numbers in place of open sizes."""
        return self.place.closed(self._value)

    def update(self, words: np.ndarray[Any, Any], found: Any) -> None:
        """Write the address of a new value, or of a contiguous copy of it.

        Raises:
            ValueError: its number of elements is not the one that the code was made for. The two
                branches of a condition may give different shapes, of which one is assumed.
        """
        value = self._value
        array = _part(found, self.value) if value.part else plain(found)
        if not value.part and array.size != self._size:
            has, rules = list(array.shape), list(self.value.shape)
            raise ValueError(f"{self.name} has shape {has}, but by the rules of shapes {rules}")
        used = np.ascontiguousarray(array, value.dtype)
        keeps = used is not found or self.name in self.place.layout.packed
        self.copy = used if keeps else None
        self.seen = weakref.ref(found) if used is found else _nothing
        begin = address(used)
        for position in self.positions:
            words[position] = begin


def _nothing() -> None:
    """Stands for a weak reference whose object is gone."""


class CodeRun:
    """A piece of code with its arguments, which its step calls.

    Args:
        place: where values lie.
        piece: the operators.
        own: gives the task's step for a step that the code was made from. Tasks of several devices
            share code, which was made from the steps of one of them.
    """

    def __init__(self, place: CodeMemory, piece: Piece, own: Callable[[Step], Step]) -> None:
        table = piece.table
        self._piece, self._own = piece, own
        self.made_by = table
        sized = place.sized.get(table, ())
        self.words = table.words(place.rows, sized, *place.starts)
        self.table = table.rows(address(self.words))
        self._table_at = address(self.table)
        self._kept = [place.memory, *sized]  # the words are addresses
        self.numbers = table.numbers
        self.brought = [_Brought(value, at, place) for value, at in table.brought.items()]
        self.made = piece.made
        self.place = place
        self.published = [(name, value, place.arrays(value)) for name, value in piece.published]
        self.dense = [(name, a[0]) for name, v, a in self.published if is_array(v)]
        self.others = [(name, v, a) for name, v, a in self.published if not is_array(v)]

    def step(self, drops: tuple[str, ...]) -> Step:
        """The step that runs it."""
        return Step(self._own(self._piece.steps[0][0][0]).node, self.run, drops, self)

    @property
    def parts(self) -> list[tuple[list[Step], int]]:
        """The steps whose work it does, with the row after their last one, see :class:`Piece`."""
        first = self._piece.first
        return [([*map(self._own, steps)], end - first) for steps, end in self._piece.steps]

    @property
    def alone(self) -> list[str]:
        """Names of values that share their memory with no value that is needed elsewhere."""
        return [v.name for _, v, _ in self.published if self.place.layout.alone(v)]

    @property
    def rows(self) -> int:
        """How many kernels it calls."""
        return len(self.table)

    def run(self, env: Env, stamps: np.ndarray[Any, Any] | None = None, at: int = 0) -> None:
        """Run it on the values of a device.

        Args:
            env: the values.
            stamps: takes the times of its rows, see :func:`tables.run_timed`; None: no times.
            at: position of the first time in ``stamps``.
        """
        for source in self.brought:
            try:
                array = env[source.name]
            except KeyError as error:  # a branch that did not run would have made it
                raise BodyError(self._reader_of(source.name), env, error) from error
            if array is not source.seen():
                self._bring(source, array, env)
        for at_word, number in self.numbers:
            self.words[at_word] = word_of(number(env.shard))
        end = len(self.table)
        if stamps is None:
            row = tables.run(self._table_at, 0, end)
        else:
            row = tables.run_timed(self._table_at, 0, end, address(stamps), at)
        if row != end:
            self._refused(row, env)
        for name, array in self.dense:
            env[name] = np.asarray(array, order="C")
        for name, value, arrays in self.others:
            env[name] = result_of(value, arrays)

    def values(self) -> Iterator[tuple[str, int, int]]:
        """Name, address and bytes of the values that it computes; values may share an address.

        Values that no kernel needs have 0 bytes.
        """
        for name, value in self.made.items():
            for part, array in zip(value.parts, self.place.arrays(value), strict=True):
                nbytes = array.nbytes if self.place.holds(part) else 0
                yield name, address(array), nbytes

    def _bring(self, source: _Brought, array: Any, env: Env) -> None:
        try:
            source.update(self.words, array)
        except ValueError as error:
            raise BodyError(self._reader_of(source.name), env, error) from error

    def _reader_of(self, name: str) -> Operator:
        """The first operator that reads a value from outside."""
        ops = (step.node.op for steps, _ in self.parts for step in steps)
        return next(op for op in ops if op and name in op.reads)

    def _refused(self, row: int, env: Env) -> None:
        """Raise the error of the operator that refused its values, which NumPy finds."""
        step = next(steps[0] for steps, end in self.parts if end > row)
        op, inner = step.node.op, Env(env.shard, around=env)
        assert op is not None
        for name in self.made.keys() & op.input_arg_names:  # others are not computed yet
            inner[name] = result_of(self.made[name], self.place.arrays(self.made[name]))
        _, arguments = self._piece.table.calls[row]
        try:
            if isinstance(arguments[0], PythonRow):
                arguments[0].raise_error(int(self.table[row, 1]) + 8)  # behind the function
            step.call(inner)  # type: ignore[arg-type]
        except BodyError:
            raise
        except Exception as error:
            raise BodyError(op, inner, error) from error
        raise RuntimeError(f"the kernel of {step.node.name} refused values that the operator takes")


def _part(found: SelectedRows, value: Value) -> Any:
    """One of the arrays that stand for a sparse value."""
    if value.part == "count":
        return np.array([len(found.row_array)])
    array = found.row_array if value.part == "rows" else found.value
    if len(array) > value.shape[0]:
        raise RuntimeError(f"{value.name} has {len(array)} rows, but room for {value.shape[0]}")
    return array
