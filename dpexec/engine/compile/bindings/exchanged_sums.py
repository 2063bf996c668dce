"""The rows of a collective task in which other processes take part, see :mod:`.exchanges`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.bindings.exchanges import TaskExchange
from dpexec.engine.compile.bindings.sizes import Computed
from dpexec.engine.compile.bindings.sums import Joined, NotCodeError, Row
from dpexec.engine.compile.regions.code_run import is_array
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.sizes import at_most
from dpexec.engine.kernels import collectives
from dpexec.engine.kernels.lowering import Sparse, Value

__all__ = ["ExchangedSums", "fits"]

_BLOCK = 1 << 14
"""Numbers: what is added up at once, if several values are, so that the sum stays in the cache."""


def fits(array: np.ndarray[Any, Any], slot: np.ndarray[Any, Any]) -> bool:
    """Whether a value can lie in a slot.

    Args:
        array: the value.
        slot: where it should go.
    """
    alike = (array.shape, array.dtype) == (slot.shape, slot.dtype)
    return alike and array.flags.c_contiguous


class ExchangedSums:
    """The sums of a collective task over several processes, while they are put together.

    Args:
        parts: where values and sums lie.
        limits: per device, how many rows sparse values have at most, by name.

    Attributes:
        posts: the calls that put values where the others find them.
        rows: the calls that add up.
        joined: the sparse ones.
    """

    def __init__(self, parts: TaskExchange, limits: Sequence[Mapping[str, int]]) -> None:
        self.posts: list[Row] = []
        self.rows: list[Row] = []
        self.joined: list[Joined] = []
        self._parts, self._limits = parts, limits

    def add(self, node: OpNode, name: str, values: Mapping[int, Computed]) -> Computed:
        """Add a value up.

        Args:
            node: for which node.
            name: of the value.
            values: by device of this process.

        Returns:
            The sum over the devices of all processes.

        Raises:
            NotCodeError: there is no code that does it.
        """
        kinds = {isinstance(value, Sparse) for value, _ in values.values()}
        if len(kinds) > 1:
            raise NotCodeError
        if kinds == {True}:
            return self._join(node, name, values)
        value = next(iter(values.values()))[0]
        (total,) = self._parts.results[name]
        for device, (made, (array,)) in values.items():
            if not is_array(made) or not fits(array, total):
                raise NotCodeError
            slot = self._parts.slots.get((device, name))
            if slot is not None and slot.ctypes.data != array.ctypes.data:
                words = array.nbytes, slot.ctypes.data, array.ctypes.data
                self.posts.append((node, collectives.copy, words))
        self._add_up(node, name, total)
        assert isinstance(value, Value)
        return value, [total]

    def _add_up(self, node: OpNode, name: str, total: np.ndarray[Any, Any]) -> None:
        """What this process adds up of a value."""
        for part in self._parts.additions:
            if part.name != name:
                continue
            if total.dtype != np.float32:
                raise NotCodeError
            block = part.count if len(part.values) == 2 else _BLOCK
            for start in range(0, part.count, block):
                count = min(block, part.count - start)
                out, before, *others = (a + 4 * start for a in (part.out, *part.values))
                for other in others:
                    self.rows.append((node, collectives.add, (count, out, before, other)))
                    before = out

    def _join(self, node: OpNode, name: str, values: Mapping[int, Computed]) -> Computed:
        """Put sparse rows one behind the other."""
        like = next(iter(values.values()))[0]
        assert isinstance(like, Sparse)
        rows, value, total = self._parts.results[name]
        room = max((at_most(limits.get(name, 0)) for limits in self._limits), default=0)
        if like.dtype != "float32" or not 0 < room <= len(rows):
            raise NotCodeError
        made = Sparse.like(like.shape, like.dtype, room, name, own=False)
        out = [rows[:room], value[:room], total]
        counts, first = self._parts.counts.get(name, ((), 0))
        for index, (device, (_, arrays)) in enumerate(values.items()):
            slot = self._parts.slots.get((device, name))
            if slot is None:
                continue
            self.posts.append(
                (node, collectives.copy, (8, slot.ctypes.data, arrays[2].ctypes.data))
            )
            addresses = [a.ctypes.data for a in (*arrays[:2], *out)]
            words = len(counts), first + index, like.width, room, *addresses, *counts
            self.rows.append((node, collectives.place, words))
        row_bytes = made.rows.dtype.itemsize + like.width * made.value.dtype.itemsize
        self.joined.append(Joined(node, total, row_bytes))
        return made, out
