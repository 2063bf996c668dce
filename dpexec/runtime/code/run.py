"""Pieces of code with their memory and arguments: what runs them, as steps of a task."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.core.tensors import SelectedRows
from dpexec.ir.sizes import Counts, Rows, at
from dpexec.kernels import machine
from dpexec.kernels.lowering import Sparse, Value
from dpexec.runtime.bodies import BodyError
from dpexec.runtime.code.table import CodeTable, word_of
from dpexec.runtime.env import Env
from dpexec.runtime.steps import Step

if TYPE_CHECKING:
    from dpexec.runtime.code.task import Piece, TaskCode

__all__ = ["CodeMemory", "CodeRun", "result_of", "word_of"]


class CodeMemory:
    """The memory of a task's code.

    Args:
        code: the code.
        memory: the arena.
        inner: where the block begins in it that only this code uses.
        lasting: where each of the lasting buffers begins.
        rows: numbers of the device's batch, on which sizes may depend.
        late: what was made for them, per table.
    """

    def __init__(
        self,
        code: TaskCode,
        memory: np.ndarray[Any, Any],
        inner: int,
        lasting: Sequence[int],
        rows: Counts,
        late: Mapping[CodeTable, Sequence[Any]],
    ) -> None:
        self.code = code
        self.memory = memory
        self.rows, self.late = rows, late
        address = memory.ctypes.data
        self.starts = address + inner, address + np.array(lasting, np.int64)
        self._places = {buffer: inner + at for buffer, at in code.places.items()}
        self._places.update(zip(code.lasting, lasting, strict=True))

    def arrays(
        self, value: Value | Sparse, rows: Counts | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """The memory of all parts of a value that code computes.

        Args:
            value: the value.
            rows: other numbers of rows.
        """
        count = self.rows if rows is None else rows
        return [self._array(part, count) for part in value.parts]

    def _array(self, value: Value, rows: Counts) -> np.ndarray[Any, Any]:
        assert value.buffer is not None
        shape = [at(size, rows) for size in value.shape]
        if value.buffer not in self._places:  # of size 0, or no kernel needs it
            return np.empty(shape, value.dtype)
        start = self._places[value.buffer]
        end = start + math.prod(shape) * value.dtype.itemsize
        flat_array = self.memory[start:end].view(value.dtype)
        if not value.channels_last:
            return flat_array.reshape(shape)
        batch, channels, *size = shape
        return np.moveaxis(flat_array.reshape(batch, *size, channels), -1, 1)

    def closed(self, value: Value) -> Value:
        """A value with numbers as its dimensions."""
        if Rows.of(*value.shape) is None:
            return value
        return replace(value, shape=tuple(at(size, self.rows) for size in value.shape))

    def holds(self, value: Value) -> bool:
        """Whether a value has memory: none has it that no kernel needs."""
        return value.buffer in self._places


class _Brought:
    """An array that comes from the env, and where its address goes."""

    __slots__ = ("copy", "name", "positions", "seen", "value")

    def __init__(self, value: Value, positions: list[int]) -> None:
        self.name = value.name
        self.value = value
        self.positions = positions
        self.seen: Any = _nothing  # a weak reference: code keeps no values between runs
        self.copy: Any = None

    def update(self, words: np.ndarray[Any, Any], found: Any) -> None:
        """Take a new value; code needs its elements in order, one after another.

        Raises:
            ValueError: it has not as many elements as the code was made for. Shapes are known
                before a run, but what a branch gives may differ from what the other one gives.
        """
        array = _part(found, self.value) if self.value.part else found
        if not self.value.part and array.size != math.prod(self.value.shape):
            has, rules = list(array.shape), list(self.value.shape)
            raise ValueError(f"{self.name} has shape {has}, but by the rules of shapes {rules}")
        used = np.ascontiguousarray(array, self.value.dtype)
        self.copy = None if used is found else used
        self.seen = weakref.ref(found) if used is found else _nothing
        words[self.positions] = used.__array_interface__["data"][0]


def _nothing() -> None:
    """What a weak reference gives when its object is gone."""


class CodeRun:
    """A piece of code with its arguments: what its step calls.

    Args:
        place: where values lie.
        piece: the operators.
        own: the steps of the task, by the identities of the nodes that the code was made from.
    """

    def __init__(self, place: CodeMemory, piece: Piece, own: Mapping[int, Step]) -> None:
        table = piece.table
        self.parts = [
            ([own[id(step.node)] for step in steps], end - piece.first)
            for steps, end in piece.steps
        ]
        """The steps that it does, together where one kernel does several, and behind which row."""
        self.made_by = table
        late = place.late.get(table, ())
        self.words = table.words(place.rows, late, *place.starts)
        self.table = table.rows(self.words.ctypes.data)
        self._kept = [place.memory, *late]  # the words are addresses
        self.numbers = table.numbers
        self.brought = [
            _Brought(place.closed(value), found) for value, found in table.brought.items()
        ]
        self.made = piece.made
        self.place = place
        self.published = [(name, value, place.arrays(value)) for name, value in piece.published]
        self.dense = [(name, a[0]) for name, v, a in self.published if isinstance(v, Value)]
        self.alone = [v.name for _, v, _ in self.published if place.code.alone(v)]
        """Values in whose memory nothing else lies that is needed outside of the task."""
        self.sparse = [(name, v, a) for name, v, a in self.published if isinstance(v, Sparse)]

    def step(self, drops: tuple[str, ...]) -> Step:
        """The step that runs it."""
        return Step(self.parts[0][0][0].node, self.run, drops, self)

    @property
    def rows(self) -> int:
        """How many kernels it calls."""
        return len(self.table)

    def run(self, env: Env, stamps: np.ndarray[Any, Any] | None = None, at: int = 0) -> None:
        """Run it on the values of a device.

        Args:
            env: the values.
            stamps: where to note the times of its rows, see :func:`machine.run_timed`; None: not.
            at: where in ``stamps``.
        """
        for source in self.brought:
            array = env[source.name]
            if array is not source.seen():
                self._bring(source, array, env)
        for at_word, number in self.numbers:
            self.words[at_word] = word_of(number(env.shard))
        end = len(self.table)
        if stamps is None:
            row = machine.run(self.table, 0, end)
        else:
            row = machine.run_timed(self.table, 0, end, stamps, at)
        if row != end:
            self._refused(row, env)
        for name, array in self.dense:
            env[name] = np.asarray(array, order="C")
        for name, value, arrays in self.sparse:
            env[name] = result_of(value, arrays)

    def values(self) -> Iterator[tuple[str, int, int]]:
        """Name, address and bytes of what it computes; values may lie in one place in turn.

        What no kernel needs has no bytes.
        """
        for name, value in self.made.items():
            for part, array in zip(value.parts, self.place.arrays(value), strict=True):
                nbytes = array.nbytes if self.place.holds(part) else 0
                yield name, array.__array_interface__["data"][0], nbytes

    def _bring(self, source: _Brought, array: Any, env: Env) -> None:
        try:
            source.update(self.words, array)
        except ValueError as error:
            ops = (step.node.op for steps, _ in self.parts for step in steps)
            reader = next(op for op in ops if op and source.name in op.input_arg_names)
            raise BodyError(reader, env, error) from error

    def _refused(self, row: int, env: Env) -> None:
        """Let the operator that refused its values say why, on NumPy."""
        step = next(steps[0] for steps, end in self.parts if end > row)
        inner = Env(env.shard, around=env)
        inner.update(
            {name: result_of(value, self.place.arrays(value)) for name, value in self.made.items()}
        )
        assert step.node.op is not None
        try:
            step.call(inner)  # type: ignore[arg-type]
        except Exception as error:
            raise BodyError(step.node.op, inner, error) from error
        raise RuntimeError(f"the kernel of {step.node.name} refused values that the operator takes")


def _part(found: SelectedRows, value: Value) -> Any:
    """One of the arrays that stand for a sparse value."""
    if value.part == "count":
        return np.array([len(found.row_array)])
    array = found.row_array if value.part == "rows" else found.value
    if len(array) > value.shape[0]:
        raise RuntimeError(f"{value.name} has {len(array)} rows, but room for {value.shape[0]}")
    return array


def result_of(value: Value | Sparse, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """What the env gets for a value that code computed."""
    if isinstance(value, Value):
        return arrays[0]
    rows, array, count = arrays
    return SelectedRows(rows[: count[0]], value.height, array[: count[0]])
