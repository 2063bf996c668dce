"""Dask collections as feeds of a cluster: they stay on the workers.

A collection is computed block by block, where dask sees fit. The client learns shapes and types
alone. Then each replica takes its rows: dask's workers hand them over among themselves, and what
lies on the replica's worker already does not move.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.base import is_dask_collection

from dpexec.engine.core.copies import values_on
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.dask.blocks import (
    Blocks,
    brought,
    check_columns,
    matrix,
    parts_of,
    rows_of_blocks,
)

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["BlockRows", "Fed", "HeldRows", "hold", "put_together"]

_logger = logging.getLogger(__name__)

_Block = tuple[tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True)
class BlockRows:
    """Some rows of a block.

    Args:
        future: the block.
        rows: how many it has.
        first: the first of them that is meant.
        end: the one behind the last.
    """

    future: Any
    rows: int
    first: int
    end: int

    def cut(self, start: int, stop: int) -> BlockRows:
        """The rows of it that lie between two positions, counted from its first row."""
        first = self.first + max(start, 0)
        return BlockRows(self.future, self.rows, first, min(self.first + stop, self.end))


class HeldRows:
    """Rows that lie on workers; what splits and checks feeds takes them for an array.

    Args:
        pieces: one after another.
        shape: of all of them together.
        dtype: of their numbers.
    """

    def __init__(
        self, pieces: Sequence[BlockRows], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.pieces, self.shape, self.dtype = tuple(pieces), shape, dtype

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
        start, stop, _ = rows.indices(len(self))
        found, at = [], 0
        for piece in self.pieces:
            cut = piece.cut(start - at, stop - at)
            if cut.first < cut.end:
                found.append(cut)
            at += piece.end - piece.first
        return HeldRows(found, (max(stop - start, 0), *self.shape[1:]), self.dtype)


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
        ClusterError: workers or the scheduler do not answer, or nobody reaches what is needed.
        Exception: what computing them raised.
    """
    lazy = {n: v for n, v in feed.items() if n in names and is_dask_collection(v)}
    if not lazy:
        return dict(feed), {}
    for name, value in lazy.items():
        check_columns(name, value)
    from dpexec.engine.dask.computing import Computing  # 20 MB, if there is a cluster

    parts = [parts_of(value) for value in lazy.values()]
    futures, facts = Computing(contact, parts, (matrix, _shape_and_type)).run()
    made, blocks = dict(feed), {}
    for name, found, known in zip(lazy, futures, facts, strict=True):
        made[name] = _put_together(name, list(zip(found, known, strict=True)))
        blocks[name] = rows_of_blocks(lazy[name], [piece.rows for piece in made[name].pieces])
    return made, blocks


def _shape_and_type(block: np.ndarray[Any, Any]) -> _Block:
    return block.shape, block.dtype


def _put_together(name: str, blocks: Sequence[tuple[Any, _Block]]) -> HeldRows:
    kinds = {(shape[1:], dtype) for _, (shape, dtype) in blocks}
    if len(kinds) > 1 or not all(shape for _, (shape, _) in blocks):
        raise ValueError(
            f"fed Variable {name!r}: the blocks of its Dask collection do not fit together, their "
            f"shapes and types are {[(list(shape), str(dtype)) for _, (shape, dtype) in blocks]}"
        )
    ((rest, dtype),) = kinds
    pieces = [BlockRows(future, shape[0], 0, shape[0]) for future, (shape, _) in blocks]
    return HeldRows(pieces, (sum(piece.rows for piece in pieces), *rest), dtype)


@dataclass(frozen=True)
class Fed:
    """What a replica is fed, on its way to the replica's worker.

    Args:
        values: what travels with the task, by name.
        counts: of how many blocks the rest is put together, by name.
        blocks: futures of these, which the task depends on.
        holders: the workers that have them.
    """

    values: Mapping[str, Any]
    counts: Mapping[str, int]
    blocks: Sequence[Any]
    holders: frozenset[str] = frozenset()

    @classmethod
    def of(cls, contact: Contact, values: Mapping[str, Any], worker: str) -> Fed:
        """Find out what travels how: whole blocks do, and rows cut out of others where they lie.

        Args:
            contact: how the cluster is talked to.
            values: what the replica is fed; arrays and :class:`HeldRows`.
            worker: that of the replica.

        Raises:
            SchedulerLostError: the scheduler does not say where they lie.
        """
        values = values_on(CPUPlace(), values)  # a loader may have put them on a GPU
        held = {name: value for name, value in values.items() if isinstance(value, HeldRows)}
        if not held:
            return cls(values, {}, ())
        pieces = [piece for value in held.values() for piece in value.pieces]
        homes = contact.holders([piece.future for piece in pieces])
        return cls(
            {name: value for name, value in values.items() if name not in held},
            {name: len(value.pieces) for name, value in held.items()},
            [_rows_of(contact, p, homes.get(p.future.key, ()), worker) for p in pieces],
            frozenset(itertools.chain.from_iterable(homes.values())),
        )


def _rows_of(contact: Contact, piece: BlockRows, holders: Sequence[str], worker: str) -> Any:
    """A future of some rows, which lies where the worker of the replica reaches it."""
    client, future = contact.client, piece.future
    if holders and not any(contact.reachability.between(holder, worker) for holder in holders):
        where, limit = holders[0], contact.limit
        _logger.info("fed rows go from %s through the client to %s", where, worker)
        args = future, piece.first, piece.end
        rows = brought(contact, where, "to bring fed rows", _rows, *args)
        return client.scatter(rows, workers=[worker], direct=False, hash=False, timeout=limit)
    if piece.end - piece.first == piece.rows:
        return future
    workers, args = list(holders) or None, (future, piece.first, piece.end)
    return client.submit(_rows, *args, workers=workers, allow_other_workers=workers is not None)


def _rows(block: np.ndarray[Any, Any], first: int, end: int) -> np.ndarray[Any, Any]:
    return block[first:end]


def put_together(
    values: Mapping[str, Any], counts: Mapping[str, int], blocks: Iterator[Any]
) -> dict[str, Any]:
    """On the worker: all values of a replica, see :class:`Fed`.

    Args:
        values: what came with the task.
        counts: of how many blocks others are put together.
        blocks: gives these, one after another.
    """
    found = {name: list(itertools.islice(blocks, count)) for name, count in counts.items()}
    rows = {n: f[0] if len(f) == 1 else np.concatenate(f) for n, f in found.items()}
    return {**values, **rows}
