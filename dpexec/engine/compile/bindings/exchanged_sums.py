"""The calls of a collective task that other processes take part in, see :mod:`.exchanges`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.bindings.exchanges import TaskExchange
from dpexec.engine.compile.bindings.outside import Outside
from dpexec.engine.compile.bindings.sizes import Computed
from dpexec.engine.compile.bindings.sums import Joined, NotCodeError, Row, kernel_of
from dpexec.engine.compile.regions.operands import is_array
from dpexec.engine.core.reductions import Reduction
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.sizes import at_most
from dpexec.engine.kernels import collectives
from dpexec.engine.kernels.lowering import Sparse, Value
from dpexec.engine.kernels.machine import Kernel

__all__ = ["ExchangedSums", "fits"]

Post = tuple[Kernel, Sequence[int | Outside]]
"""A kernel and its arguments; a stored variable stands for its address."""

_NOBODY = -1
_BLOCK = 1 << 14
"""How many numbers of three or more values are added up at once: their sum stays in the cache."""


def fits(array: np.ndarray[Any, Any], slot: np.ndarray[Any, Any]) -> bool:
    """Whether code may compute a value in a slot instead of an array of its own.

    Args:
        array: the array that the value would have otherwise.
        slot: memory that other processes see.
    """
    alike = (array.shape, array.dtype) == (slot.shape, slot.dtype)
    return alike and array.flags.c_contiguous


class ExchangedSums:
    """The sums of a collective task over several processes, while they are put together.

    Args:
        parts: where values and sums lie.
        limits: per device, the most rows that sparse values have, by name.

    Attributes:
        posts: the calls that put values where the other processes read them.
        rows: the calls that add up.
        joined: the sparse sums.
    """

    def __init__(self, parts: TaskExchange, limits: Sequence[Mapping[str, int]]) -> None:
        self.posts: list[Post] = []
        self.rows: list[Row] = []
        self.joined: list[Joined] = []
        self._parts, self._limits = parts, limits

    def add(
        self, node: OpNode, name: str, how: Reduction, values: Mapping[int, Computed | Outside]
    ) -> Computed:
        """Combine the values of several devices.

        Args:
            node: the collective that combines them.
            name: of the value.
            how: how dense values are combined.
            values: the values of this process's devices, by device; may be empty.

        Returns:
            The sum over the devices of all processes.

        Raises:
            NotCodeError: no kernel does it.
        """
        computed = {d: v for d, v in values.items() if not isinstance(v, Outside)}
        sparse = name in self._parts.heights
        if any(isinstance(value, Sparse) != sparse for value, _ in computed.values()):
            raise NotCodeError
        if sparse:
            return self._join(node, name, computed)
        (total,) = self._parts.results[name]
        for device, found in values.items():
            self._post(self._parts.slots.get((device, name)), found, total)
        self._add_up(node, name, how, total)
        made = Value(total.shape, total.dtype, name=name)
        return next((value for value, _ in computed.values()), made), [total]

    def _post(
        self,
        slot: np.ndarray[Any, Any] | None,
        found: Computed | Outside,
        like: np.ndarray[Any, Any],
    ) -> None:
        """Put a value where the other processes read it."""
        source: int | Outside
        if isinstance(found, Outside):
            if (found.value.shape, found.dtype) != (like.shape, like.dtype):
                raise NotCodeError
            source = found
        else:
            made, arrays = found
            if not is_array(made) or not fits(arrays[0], like):
                raise NotCodeError
            source = arrays[0].ctypes.data
        if slot is not None and slot.ctypes.data != source:
            self.posts.append((collectives.copy, (slot.nbytes, slot.ctypes.data, source)))

    def _add_up(self, node: OpNode, name: str, how: Reduction, total: np.ndarray[Any, Any]) -> None:
        """Add the calls for the part of a sum that falls to this process."""
        for part in self._parts.additions:
            if part.name != name:
                continue
            if len(part.values) == 1:
                words = part.count * total.itemsize, part.out, part.values[0]
                self.rows.append((node, collectives.copy, words))
                continue
            if total.dtype != np.float32:
                raise NotCodeError
            kernel = kernel_of(how)
            block = part.count if len(part.values) == 2 else _BLOCK
            for start in range(0, part.count, block):
                count = min(block, part.count - start)
                out, before, *others = (a + 4 * start for a in (part.out, *part.values))
                for other in others:
                    self.rows.append((node, kernel, (count, out, before, other)))
                    before = out

    def _join(self, node: OpNode, name: str, values: Mapping[int, Computed]) -> Computed:
        """Put sparse rows one behind the other."""
        rows, value, total = self._parts.results[name]
        room = max((at_most(limits.get(name, 0)) for limits in self._limits), default=0)
        if value.dtype != np.float32 or not 0 < room <= len(rows):
            raise NotCodeError
        shape = self._parts.heights[name], *value.shape[1:]
        made = Sparse.like(shape, value.dtype, room, name, own=False)
        out = [rows[:room], value[:room], total]
        counts, first = self._parts.counts.get(name, ((), 0))
        for index, (device, (_, arrays)) in enumerate(values.items()):
            slot = self._parts.slots.get((device, name))
            if slot is None:
                continue
            self.posts.append((collectives.copy, (8, slot.ctypes.data, arrays[2].ctypes.data)))
            addresses = [a.ctypes.data for a in (*arrays[:2], *out)]
            words = len(counts), first + index, made.width, room, *addresses, *counts
            self.rows.append((node, collectives.place, words))
        if counts and not values:  # no device here has rows, but the sum needs its number of rows
            addresses = [a.ctypes.data for a in (*out[:2], *out)]
            words = len(counts), _NOBODY, made.width, room, *addresses, *counts
            self.rows.append((node, collectives.place, words))
        row_bytes = made.rows.dtype.itemsize + made.width * made.value.dtype.itemsize
        self.joined.append(Joined(node, total, row_bytes))
        return made, out
