"""Dask collections as feeds of a cluster: they stay on the workers.

A collection is computed block by block, where dask schedules it. The client gets only shapes and
types. Then each replica takes its rows, see :mod:`.deliveries`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from dask.base import is_dask_collection

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.dask.blocks import (
    Blocks,
    check_columns,
    matrix,
    parts_of,
    rows_of_blocks,
)

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["Block", "BlockRows", "HeldBlocks", "HeldRows", "held_arrays", "hold"]

_Facts = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of an array."""


class Block:
    """A block on a worker: an array, or arrays by name.

    Dask gives up all that a client has, when the client loses its connection to the scheduler. Then
    the block is computed again when it is needed.

    Args:
        future: the block.
        again: computes it again; is told whether in tasks of other names.

    Attributes:
        future: the block, as it was computed last.
    """

    def __init__(self, future: Any, again: Callable[[bool], Any]) -> None:
        self.future, self._again = future, again
        self._lock = threading.Lock()  # blocks are sent ahead by another thread than that of steps

    def restore(self) -> None:
        """Compute the block again if dask has given it up.

        Raises:
            ClusterError: workers or the scheduler do not answer, or what it is made of is lost.
            Exception: what computing it raised.
        """
        if self.future.status == "cancelled":
            with self._lock:
                if self.future.status == "cancelled":
                    self.future = self._again(False)

    def renew(self, before: Any) -> None:
        """Compute it again, as its holders are silent; another thread may have done so.

        Args:
            before: the future of what these hold.
        """
        with self._lock:
            if self.future is before:
                self.future = self._again(True)


class BlockRows(NamedTuple):
    """Some rows of a block.

    Args:
        block: the block.
        rows: number of its rows.
        first: the first of the rows.
        end: the row after the last.
    """

    block: Block
    rows: int
    first: int
    end: int


class HeldBlocks:
    """Rows of blocks that lie on workers, one after another.

    Args:
        pieces: the rows of each block.

    Attributes:
        pieces: the same.
        begins: where each piece begins, and finally where the last one ends.
        on_way: ranges on their way to workers, by purpose and worker.
    """

    def __init__(self, pieces: Iterable[BlockRows]) -> None:
        self.pieces = tuple(pieces)
        sizes = [piece.end - piece.first for piece in self.pieces]
        self.begins = np.cumsum([0, *sizes])
        self.on_way: dict[tuple[Hashable, str], Any] = {}


class HeldRows:
    """Rows that lie on workers; code that splits and checks feeds treats them as an array.

    Args:
        blocks: where they lie.
        first: the first of the rows there.
        shape: shape of all these rows together.
        dtype: their type.
        name: name of the blocks' array, if there are several.
    """

    __slots__ = ("blocks", "dtype", "first", "name", "shape")

    def __init__(
        self,
        blocks: HeldBlocks,
        first: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        name: str | None = None,
    ) -> None:
        self.blocks, self.first, self.shape, self.dtype = blocks, first, shape, dtype
        self.name = name

    @property
    def end(self) -> int:
        """The row after the last."""
        return self.first + self.shape[0]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> HeldRows:
        """Some rows, which stay where they are."""
        start, stop, _ = rows.indices(self.shape[0])
        shape = max(stop - start, 0), *self.shape[1:]
        return HeldRows(self.blocks, self.first + start, shape, self.dtype, self.name)

    @property
    def pieces(self) -> list[BlockRows]:
        """The blocks, and which rows of them these are."""
        found = []
        for piece, begin in zip(self.blocks.pieces, self.blocks.begins.tolist(), strict=False):
            first = piece.first + max(self.first - begin, 0)
            end = min(piece.first + self.end - begin, piece.end)
            if first < end:
                found.append(piece._replace(first=first, end=end))
        return found

    @staticmethod
    def joined(parts: Sequence[Mapping[str, HeldRows]]) -> dict[str, HeldRows]:
        """Rows that follow each other, by name; types and shapes are the same, but for numbers."""
        made: dict[str, HeldRows] = {}
        known: dict[Any, HeldBlocks] = {}  # what lies in the same rows does so afterwards
        for name, like in parts[0].items():
            found = [part[name] for part in parts]
            where = tuple((id(each.blocks), each.first, each.end) for each in found)
            if where not in known:
                known[where] = HeldBlocks(piece for each in found for piece in each.pieces)
            shape = sum(map(len, found)), *like.shape[1:]
            made[name] = HeldRows(known[where], 0, shape, like.dtype, like.name)
        return made


def hold(
    contact: Contact, feed: Mapping[str, Any], names: Collection[str]
) -> tuple[dict[str, Any], Blocks]:
    """Compute the Dask collections of a feed on a cluster, and leave them there.

    Args:
        contact: how the cluster is talked to.
        feed: what is fed, by name.
        names: the variables that are split over devices; others are left as they are.

    Returns:
        The feed with :class:`HeldRows`, and for each of these the rows of its blocks.

    Raises:
        TypeError: a Dask dataframe with columns of different types.
        ValueError: blocks of a collection do not fit together.
        ClusterError: workers or the scheduler do not answer, or no worker reaches all data.
        Exception: what computing them raised.
    """
    lazy = {n: v for n, v in feed.items() if n in names and is_dask_collection(v)}
    if not lazy:
        return dict(feed), {}
    for name, value in lazy.items():
        check_columns(name, value)
    parts = [parts_of(value) for value in lazy.values()]
    computed = _computed(contact, parts, (matrix, _shape_and_type))
    made, blocks = dict(feed), {}
    for name, found in zip(lazy, computed, strict=True):
        made[name] = _put_together(name, found)
        blocks[name] = rows_of_blocks(lazy[name], [piece.rows for piece in made[name].pieces])
    return made, blocks


def _shape_and_type(block: np.ndarray[Any, Any]) -> _Facts:
    return block.shape, block.dtype


def _computed(
    contact: Contact, parts: Sequence[Sequence[Any]], steps: Sequence[Callable[[Any], Any]]
) -> list[list[tuple[Block, Any]]]:
    """Compute blocks, and facts about each, see :class:`.computing.Computing`."""
    from dpexec.engine.dask.computing import Computing  # 20 MB, if there is a cluster

    def again(part: Any, facts: Any, anew: bool) -> Any:
        ((future,),), ((found,),) = Computing(contact, [[part]], steps, anew).run()
        if found != facts:
            raise EnforceNotMet(
                "a block of a fed Dask collection had to be computed again, and has another shape "
                f"or type now: {found}, before {facts}"
            )
        return future

    futures, facts = Computing(contact, parts, steps).run()
    return [
        [
            (Block(future, functools.partial(again, part, known)), known)
            for part, future, known in zip(*each, strict=True)
        ]
        for each in zip(parts, futures, facts, strict=True)
    ]


def _put_together(name: str, blocks: Sequence[tuple[Block, _Facts]]) -> HeldRows:
    kinds = {(shape[1:], dtype) for _, (shape, dtype) in blocks}
    if len(kinds) > 1 or not all(shape for _, (shape, _) in blocks):
        raise ValueError(
            f"fed Variable {name!r}: the blocks of its Dask collection do not fit together, their "
            f"shapes and types are {[(list(shape), str(dtype)) for _, (shape, dtype) in blocks]}"
        )
    ((rest, dtype),) = kinds
    found = HeldBlocks(_whole(block, shape) for block, (shape, _) in blocks)
    return HeldRows(found, 0, (int(found.begins[-1]), *rest), dtype)


def _whole(block: Block, shape: Sequence[int]) -> BlockRows:
    return BlockRows(block, shape[0], 0, shape[0])


def held_arrays(contact: Contact, parts: Sequence[Any]) -> list[dict[str, HeldRows]]:
    """Compute Dask collections on a cluster, each of which gives arrays by name, and leave them.

    Args:
        contact: how the cluster is talked to.
        parts: the collections.

    Raises:
        ClusterError: workers or the scheduler do not answer, or nobody reaches what is needed.
        Exception: what computing them raised.
    """
    (computed,) = _computed(contact, [parts], (_shapes_and_types,))
    made = []
    for block, known in computed:
        ((shape, _), *_) = known.values()
        blocks = HeldBlocks([_whole(block, shape)])  # all arrays have as many rows
        made.append({n: HeldRows(blocks, 0, s, dtype, n) for n, (s, dtype) in known.items()})
    return made


def _shapes_and_types(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, _Facts]:
    return {name: _shape_and_type(array) for name, array in arrays.items()}
