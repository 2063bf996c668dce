"""Epochs over partitions: they come one after another, and are cut into batches."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from dask.delayed import Delayed, delayed

from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.dask.held import HeldRows, held_arrays
from dpexec.engine.dask.mixing import cut_rows, groups_of, join_rows

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["PartitionStream", "batches_of"]

Rows = Mapping[str, Any]
"""Arrays or :class:`HeldRows` by name, with equally many rows."""

_ATTEMPTS = 4
"""How often the same partitions may lose workers, as the partitions may be the cause."""


class PartitionStream:
    """The partitions of a collection, epoch by epoch.

    On threads one partition is computed after another. On a cluster as many as there are workers
    are computed at once, and stay there.

    Args:
        partitions: each computes arrays by name.
        mixed: number of partitions whose rows are mixed; 0 keeps all in order.
        seed: seed of the order.
        contact: the connection to the cluster that computes; None: partitions come here.

    Raises:
        ValueError: ``mixed`` is negative.
    """

    def __init__(
        self, partitions: Sequence[Delayed], mixed: int, seed: int, contact: Contact | None
    ) -> None:
        if mixed < 0:
            raise ValueError(f"shuffle is a number of partitions, or a bool, but received {mixed}")
        self._partitions, self._mixed, self._seed = partitions, mixed, seed
        self._contact = contact

    def epoch(self, number: int) -> Iterator[Sequence[Rows]]:
        """The partitions in the order of an epoch; those computed together come together.

        Args:
            number: number of the epoch.

        Raises:
            Exception: what computing them raised.
        """
        if self._contact is not None:
            return self._on_workers(self._contact, number)
        return ([rows] for rows in (self._mixed_here if self._mixed else self._here)(number))

    # ---- in this process

    def _here(self, epoch: int) -> Iterator[Rows]:
        return (self._computed(index) for index in range(len(self._partitions)))

    def _computed(self, index: int) -> Any:
        try:
            (rows,) = dask.compute(self._partitions[index])
        except Exception as error:
            error.add_note(f"Partition {index} of the collection was being computed.")
            raise
        return rows

    def _mixed_here(self, epoch: int) -> Iterator[Rows]:
        """Mix partitions here: they go to files in parts, so that memory holds one at a time."""
        count, done = len(self._partitions), 0
        for group in groups_of(count, self._mixed, self._seed, epoch):
            with tempfile.TemporaryDirectory(prefix="dpexec-rows-") as folder:
                files = [Path(folder, str(index)) for index in range(len(group))]
                for index in group:
                    rows = self._computed(index)
                    for file, part in zip(
                        files, cut_rows(rows, len(group), self._seed, epoch, index), strict=True
                    ):
                        _append(file, part)
                for file in files:
                    yield join_rows(_parts(file, len(group)), self._seed, epoch, done)
                    done += 1

    # ---- on workers

    def _on_workers(self, contact: Contact, epoch: int) -> Iterator[Sequence[Rows]]:
        if self._mixed:
            done = 0
            for group in groups_of(len(self._partitions), self._mixed, self._seed, epoch):
                yield _held(contact, self._mixed_there(group, epoch, done), f"{sorted(group)}")
                done += len(group)
            return
        left = enumerate(self._partitions)
        while some := list(itertools.islice(left, max(1, len(contact.workers())))):
            yield _held(contact, [part for _, part in some], f"{[index for index, _ in some]}")

    def _mixed_there(self, group: Sequence[int], epoch: int, done: int) -> list[Delayed]:
        """Mix partitions on workers: new partitions consist of parts of others."""
        cut, join = delayed(cut_rows, pure=False), delayed(join_rows, pure=False)
        parts = [
            cut(self._partitions[index], len(group), self._seed, epoch, index) for index in group
        ]
        return [
            join([part[place] for part in parts], self._seed, epoch, done + place)
            for place in range(len(group))
        ]


def _append(file: Path, rows: Rows) -> None:
    with file.open("ab") as stream:
        np.save(stream, np.array(list(rows)))
        for array in rows.values():
            np.save(stream, array)


def _parts(file: Path, count: int) -> list[Rows]:
    with file.open("rb") as stream:
        return [
            {str(name): np.load(stream) for name in np.load(stream).tolist()} for _ in range(count)
        ]


def _held(contact: Contact, parts: Sequence[Delayed], which: str) -> Sequence[Rows]:
    """Partitions that were computed on workers, and stay there."""
    attempts = _ATTEMPTS
    while True:
        try:
            return held_arrays(contact, parts)
        except WorkerLostError:
            attempts -= 1
            if not attempts:
                raise
        except Exception as error:
            error.add_note(f"Partitions {which} of the collection were being computed.")
            raise


def batches_of(
    partitions: Iterable[Sequence[Rows]], size: int, drop_last: bool
) -> Generator[list[Rows], None, None]:
    """Batches of rows across the borders of partitions.

    Only the order of rows counts: other partitions of the same rows give the same batches.

    Args:
        partitions: groups of partitions that were computed together.
        size: rows of a batch.
        drop_last: leave out the last batch if it is smaller.

    Yields:
        The batches that are complete after each group.
    """
    begun: list[Rows] = []
    missing = size
    for some in partitions:
        complete: list[Rows] = []
        for rows in _together(some):
            first, end = 0, _length(rows)
            while end - first >= missing:
                complete.append(_joined([*begun, _cut(rows, first, first + missing)]))
                first, missing, begun = first + missing, size, []
            if first < end:
                begun.append(_cut(rows, first, end))
                missing -= end - first
        yield complete
    if begun and not drop_last:
        yield [_joined(begun)]


def _together(partitions: Sequence[Rows]) -> Sequence[Rows]:
    """The same rows, as one partition if they lie on workers, where they stay."""
    held = [rows for rows in partitions if _are_held(rows)]
    return [HeldRows.joined(held)] if held else partitions


def _are_held(rows: Rows) -> bool:
    return isinstance(next(iter(rows.values())), HeldRows)


def _length(rows: Rows) -> int:
    return len(next(iter(rows.values())))


def _cut(rows: Rows, first: int, end: int) -> Rows:
    return {name: array[first:end] for name, array in rows.items()}


def _joined(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    if _are_held(parts[0]):
        return HeldRows.joined(parts)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
