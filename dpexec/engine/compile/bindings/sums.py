"""The sums of a collective task as calls of kernels, divided among threads where that pays."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.bindings.records import NodeRows
from dpexec.engine.compile.bindings.sizes import Computed
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.regions.memory import Memory
from dpexec.engine.compile.regions.operands import AnyValue
from dpexec.engine.core.reductions import Reduction
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.sizes import at_most
from dpexec.engine.kernels import collectives
from dpexec.engine.kernels.lowering import Sparse, Value
from dpexec.engine.kernels.machine import Kernel

__all__ = [
    "Joined",
    "NotCodeError",
    "Row",
    "TaskSums",
    "divided",
    "kernel_of",
    "part_of",
    "parts_of",
]

_SHARED_FROM = 16_384
"""Elements from which on a sum is divided among threads; smaller ones take some 2 microseconds."""
_LINE = 16
"""Elements in a line of the cache; sums are divided at multiples of it."""

Row = tuple[OpNode, Kernel, Sequence[int]]
"""A call of a kernel: the node that it works for, the kernel and its arguments."""


class Joined(NamedTuple):
    """A sparse sum: the rows of all devices one after another; a run determines how many.

    Args:
        node: the collective that makes it.
        number: the array of one element that takes the number of rows.
        row_bytes: the bytes of a row, with the number of the row.
    """

    node: OpNode
    number: np.ndarray[Any, Any]
    row_bytes: int


class NotCodeError(Exception):
    """Something in a plan is not code."""


def kernel_of(how: Reduction) -> Kernel:
    """The kernel that combines two dense values.

    Raises:
        NotCodeError: there is no kernel for it.
    """
    if how not in collectives.COMBINE:
        raise NotCodeError
    return collectives.COMBINE[how]


class TaskSums:
    """The sums of a collective task while they are put together.

    Args:
        task: the collective task.
        memory: where sums lie.
        limits: per device, the most rows that sparse values have, by name.

    Attributes:
        rows: the calls of kernels.
        joined: the sparse sums.
        kept: arrays that must live as long as the code.
    """

    def __init__(self, task: Task, memory: Memory, limits: Sequence[Mapping[str, int]]) -> None:
        self.rows: list[Row] = []
        self.joined: list[Joined] = []
        self.kept: list[Any] = []
        self._task, self._memory, self._limits = task, memory, limits

    def add(
        self,
        node: OpNode,
        name: str,
        how: Reduction,
        values: Sequence[Computed],
        onto_first: bool,
    ) -> Computed:
        """Combine the values of several devices.

        Args:
            node: the collective that combines them.
            name: of the value.
            how: how dense values are combined.
            values: the values of the devices.
            onto_first: whether the sum may overwrite the first value, as nobody else reads it.

        Raises:
            NotCodeError: no kernel does it.
        """
        value, arrays = values[0]
        if len(values) == 1:
            return values[0]
        if isinstance(value, Sparse):
            return self._join(node, name, value, [parts for _, parts in values])
        dense = [array for _, (array,) in values]
        if any((a.shape, a.dtype) != (arrays[0].shape, np.dtype(np.float32)) for a in dense):
            raise NotCodeError
        kernel = kernel_of(how)
        before = total = dense[0]
        if not onto_first:
            total = self._array(name, total.shape, total.dtype)
        for array in dense[1:]:
            addresses = [a.ctypes.data for a in (total, before, array)]
            self.rows.append((node, kernel, (total.size, *addresses)))
            before = total
        return value, [total]

    def _join(
        self,
        node: OpNode,
        name: str,
        like: Sparse,
        values: Sequence[Sequence[np.ndarray[Any, Any]]],
    ) -> Computed:
        """Put sparse rows one after another."""
        rooms = [limits.get(name, 0) for limits in self._limits]
        room = max(map(at_most, rooms), default=0)  # of the sum
        if like.dtype != "float32" or not room:
            raise NotCodeError
        made = Sparse.like(like.shape, like.dtype, room, name, own=False)
        out = [self._array((name, part.part), part.shape, part.dtype) for part in made.parts]
        for index, arrays in enumerate(values):
            addresses = [a.ctypes.data for a in (*arrays, *out)]
            self.rows.append((node, collectives.join, (index, like.width, room, *addresses)))
        row_bytes = made.rows.dtype.itemsize + like.width * made.value.dtype.itemsize
        self.joined.append(Joined(node, out[-1], row_bytes))
        return made, out

    def _array(self, name: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        size = math.prod(shape)
        nbytes = max(1, size * dtype.itemsize)
        block = self._memory.block(("sum", self._task.id, name), nbytes)
        array = block[:nbytes].view(dtype)[:size].reshape(shape)
        self.kept.append(array)
        return array


def divided(rows: list[Row], threads: int) -> list[list[Row]]:
    """Divide sums into equal parts for threads; each thread gets its part of all sums.

    Args:
        rows: the calls that add up.
        threads: how many threads work together.

    Returns:
        The calls of each thread; those of a single thread where dividing does not pay.
    """
    if threads == 1 or _elements(rows) < _SHARED_FROM:
        return [rows]
    if not all(_combines(kernel) for _, kernel, _ in rows):
        return [rows]
    parts: list[list[Row]] = [[] for _ in range(threads)]
    for node, kernel, (size, *addresses) in rows:
        share = -(-size // (threads * _LINE)) * _LINE
        for thread, part in enumerate(parts):
            first = min(thread * share, size)
            count = min(share, size - first)
            if count:
                words = (count, *(a + 4 * first for a in addresses))
                part.append((node, kernel, words))
    return parts


def _combines(kernel: Kernel) -> bool:
    """Whether a kernel combines numbers one by one."""
    return any(kernel is one for one in collectives.COMBINE.values())


def _elements(rows: Sequence[Row]) -> int:
    """How many numbers are combined; 1 where something else is done."""
    return sum(words[0] if _combines(kernel) else 1 for _, kernel, words in rows)


def _by_node(rows: Sequence[Row]) -> dict[OpNode, list[Row]]:
    found: dict[OpNode, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def parts_of(
    rows: Sequence[Row], everything: Sequence[Row], idle: Collection[OpNode]
) -> list[NodeRows]:
    """The nodes that some calls of a collective task work for.

    Args:
        rows: the calls of one thread.
        everything: the calls of all threads.
        idle: nodes that are named even if no call works for them.
    """
    found: list[NodeRows] = []
    own, all_of = _by_node(rows), _by_node(everything)
    for node in dict.fromkeys((*own, *idle)):
        mine, whole = own.get(node, []), all_of.get(node, [])
        end = (found[-1][1] if found else 0) + len(mine)
        found.append(([node], end, (_elements(mine), _elements(whole)) if whole else (1, 1)))
    return found


def part_of(
    made: AnyValue, arrays: list[np.ndarray[Any, Any]], value: Value
) -> np.ndarray[Any, Any]:
    """The array of a value that a piece of code reads and another piece has computed.

    Args:
        made: the value as it was computed.
        arrays: the arrays of its parts.
        value: the value, or part of it, as the reading code expects it.

    Raises:
        NotCodeError: it has another layout, shape or type.
    """
    names = [part.part for part in made.parts]
    if value.part not in names:
        raise NotCodeError
    array = arrays[names.index(value.part)]
    first = 1 if value.part else 0  # sparse parts may have more room than rows; kernels count rows
    fits = array.shape[first:] == value.shape[first:]
    if not fits or array.dtype != value.dtype:
        raise NotCodeError
    return array
