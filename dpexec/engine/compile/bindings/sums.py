"""The sums of a collective task as code: rows of kernels, divided among threads where that pays."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.bindings.records import NodeRows
from dpexec.engine.compile.bindings.sizes import Computed
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.regions.memory import Memory
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.sizes import at_most
from dpexec.engine.kernels import collectives
from dpexec.engine.kernels.lowering import Sparse
from dpexec.engine.kernels.machine import Kernel

__all__ = ["Joined", "NotCodeError", "Row", "TaskSums", "divided", "parts_of"]

_SHARED_FROM = 16_384
"""Elements: dividing a smaller sum among threads does not pay (it takes some 2 microseconds)."""
_LINE = 16
"""Elements in a line of the cache: where sums are divided."""

Row = tuple[OpNode, Kernel, Sequence[int]]
"""What it is for, a kernel and its arguments."""


class Joined(NamedTuple):
    """Sparse rows of all devices, one behind the other; how many there are, a run tells.

    Args:
        node: what puts them together.
        number: where it says how many there are.
        row_bytes: of each, with its number.
    """

    node: OpNode
    number: np.ndarray[Any, Any]
    row_bytes: int


class NotCodeError(Exception):
    """Something in a plan is not code."""


class TaskSums:
    """The sums of a collective task while they are put together.

    Args:
        task: the task.
        memory: where sums lie.
        limits: per device, how many rows sparse values have at most, by name.

    Attributes:
        rows: the calls.
        joined: the sparse ones.
        kept: what must live as long as the code.
    """

    def __init__(self, task: Task, memory: Memory, limits: Sequence[Mapping[str, int]]) -> None:
        self.rows: list[Row] = []
        self.joined: list[Joined] = []
        self.kept: list[Any] = []
        self._task, self._memory, self._limits = task, memory, limits

    def add(
        self, node: OpNode, name: str, values: Sequence[Computed], onto_first: bool
    ) -> Computed:
        """Add a value of several devices up.

        Args:
            node: for which node.
            name: of the value.
            values: what the devices have.
            onto_first: whether nobody else reads the first of them: the sum takes its place.

        Raises:
            NotCodeError: there is no code that does it.
        """
        value, arrays = values[0]
        if len(values) == 1:
            return values[0]
        if isinstance(value, Sparse):
            return self._join(node, name, value, [parts for _, parts in values])
        dense = [array for _, (array,) in values]
        if any((a.shape, a.dtype) != (arrays[0].shape, np.dtype(np.float32)) for a in dense):
            raise NotCodeError
        before = total = dense[0]
        if not onto_first:
            total = self._array(name, total.shape, total.dtype)
        for array in dense[1:]:
            addresses = [a.ctypes.data for a in (total, before, array)]
            self.rows.append((node, collectives.add, (total.size, *addresses)))
            before = total
        return value, [total]

    def _join(
        self,
        node: OpNode,
        name: str,
        like: Sparse,
        values: Sequence[Sequence[np.ndarray[Any, Any]]],
    ) -> Computed:
        """Put sparse rows one behind the other."""
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
    """Sums in equal parts, for as many threads; rows that depend on each other stay together.

    Args:
        rows: the sums.
        threads: how many work together.

    Returns:
        The rows of each thread; those of one where dividing does not pay.
    """
    if threads == 1 or _elements(rows) < _SHARED_FROM:
        return [rows]
    if any(kernel is not collectives.add for _, kernel, _ in rows):
        return [rows]
    parts: list[list[Row]] = [[] for _ in range(threads)]
    for node, _, (size, *addresses) in rows:
        share = -(-size // (threads * _LINE)) * _LINE
        for thread, part in enumerate(parts):
            first = min(thread * share, size)
            count = min(share, size - first)
            if count:
                addition = (count, *(a + 4 * first for a in addresses))
                part.append((node, collectives.add, addition))
    return parts


def _elements(rows: Sequence[Row]) -> int:
    """How many numbers are added; 1 where something else is done."""
    return sum(words[0] if kernel is collectives.add else 1 for _, kernel, words in rows)


def parts_of(
    rows: Sequence[Row], everything: Sequence[Row], idle: Collection[OpNode]
) -> list[NodeRows]:
    """What some of the rows of a collective task do.

    Args:
        rows: those of one thread.
        everything: those of all threads.
        idle: nodes that are to be named though nothing is left to do for them.
    """
    found: list[NodeRows] = []
    for node in dict.fromkeys((*(row[0] for row in rows), *idle)):
        mine = [row for row in rows if row[0] is node]
        whole = [row for row in everything if row[0] is node]
        end = (found[-1][1] if found else 0) + len(mine)
        found.append(([node], end, (_elements(mine), _elements(whole)) if whole else (1, 1)))
    return found
