"""Level-of-detail offsets: where the sequences lie that are stored one after another.

A rank table has the order of sequences by length, in which loops process them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from dpexec.engine.core.errors import EnforceNotMet, see

__all__ = [
    "LOD_SUFFIX",
    "NO_SEQUENCES",
    "ROWS_SUFFIX",
    "LoDRankTable",
    "Lod",
    "lod_name",
    "rows_name",
]

LOD_SUFFIX = "@LOD"
"""Suffix of slots and variables that hold the offsets of another one."""


ROWS_SUFFIX = "@ROWS"
"""Suffix of slots and variables whose sequences have the lengths that another variable holds."""


def rows_name(name: str) -> str:
    """The name of the feed that belongs to lengths: rows, divided into sequences of these lengths.

    Args:
        name: name of the variable with the lengths.
    """
    return name + ROWS_SUFFIX


def lod_name(name: str) -> str:
    """The name of the variable that holds the offsets of another one.

    Args:
        name: name of that other one.
    """
    return name + LOD_SUFFIX


class Lod:
    """Offsets of nested sequences, coarse levels first; never changed.

    ``Lod([[0, 2, 3], [0, 3, 4, 9]])``: two paragraphs, the first of two sentences, the other of
    one; the three sentences have 3, 1 and 5 words, so the tensor has 9 rows. Without levels, a
    tensor has no sequences.

    Args:
        levels: offsets per level.

    Example:
        >>> from dpexec.extend import Lod
        >>> lod = Lod([[0, 2, 5]])  # offsets of sequences of 2 and 3 rows
        >>> lod
        Lod([[0, 2, 5]])
    """

    __slots__ = ("levels",)

    dtype: ClassVar = np.dtype(np.int64)
    """Element type of the offsets."""

    def __init__(self, levels: Iterable[Any] = ()) -> None:
        self.levels = tuple([np.asarray(level, np.int64) for level in levels])

    @classmethod
    def of_lengths(cls, lengths: Iterable[Any]) -> Lod:
        """From lengths, per level.

        Args:
            lengths: ``[[2, 1], [3, 1, 5]]`` for the offsets above.
        """
        return cls(np.concatenate([[0], np.cumsum(level)]) for level in lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many offsets each level has: one more than sequences."""
        return tuple(map(len, self.levels))

    @property
    def nbytes(self) -> int:
        """Memory of the offsets."""
        return sum(level.nbytes for level in self.levels)

    @property
    def offsets(self) -> np.ndarray[Any, Any]:
        """Those of the finest level: sequence i has the rows offsets[i] to offsets[i + 1].

        Raises:
            EnforceNotMet: there are no sequences.
        """
        if not self.levels:
            raise EnforceNotMet("the tensor holds no sequences (LoD), but they are needed here")
        return self.levels[-1]

    @property
    def lengths(self) -> np.ndarray[Any, Any]:
        """Lengths of the sequences of the finest level."""
        return np.diff(self.offsets)

    @property
    def sequences(self) -> int:
        """Number of sequences of the coarsest level: the samples of a batch."""
        return len(self.levels[0]) - 1

    @property
    def rows(self) -> int:
        """Number of rows of the tensor."""
        return int(self.offsets[-1])

    def spans(self) -> list[tuple[int, int]]:
        """First row, and the one after the last, of every sequence of the finest level."""
        return list(itertools.pairwise(self.offsets.tolist()))

    def check(self, rows: int) -> None:
        """Refuse offsets that do not fit a tensor.

        Args:
            rows: of the tensor.

        Raises:
            EnforceNotMet: offsets do not begin at 0, decrease, or do not end where the next level
                (at last, the tensor) does.
        """
        sizes = [*(size - 1 for size in self.shape[1:]), rows]
        for number, (level, size) in enumerate(zip(self.levels, sizes, strict=False)):
            if (
                not len(level)
                or level[0] != 0
                or level[-1] != size
                or (level[1:] < level[:-1]).any()
            ):
                below = "sequences below" if self.shape[number + 1 :] else "rows"
                problem = (
                    f"level {number} of {self} must begin at 0, never decrease, and end at {size}, "
                    f"the number of {below}: LoD is where sequences begin, not their lengths"
                )
                raise see("lengths-that-do-not-fit", EnforceNotMet(problem))

    def part(self, first: int, count: int) -> tuple[Lod, slice]:
        """Some sequences of the coarsest level.

        Args:
            first: number of the first one.
            count: how many.

        Returns:
            Their offsets, and their rows.
        """
        start, stop, levels = first, first + count, []
        if not self.levels:
            return self, slice(start, stop)
        for level in self.levels:
            own = level[start : stop + 1]
            start, stop = int(own[0]), int(own[-1])
            levels.append(own - start)
        return Lod(levels), slice(start, stop)

    @staticmethod
    def merged(parts: Sequence[Lod]) -> Lod:
        """The offsets of tensors that are put one after another.

        Args:
            parts: as many levels each.
        """
        levels = []
        for found in zip(*(part.levels for part in parts), strict=True):
            starts = np.cumsum([0, *(level[-1] for level in found)])
            moved = [level[1:] + start for level, start in zip(found, starts, strict=False)]
            levels.append(np.concatenate([[0], *moved]))
        return Lod(levels)

    def to_lists(self) -> list[list[int]]:
        """As fluid's tensors have it."""
        return [level.tolist() for level in self.levels]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lod) and self.to_lists() == other.to_lists()

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self.levels)

    def __repr__(self) -> str:
        return f"Lod({self.to_lists()})"


NO_SEQUENCES = Lod()
"""The offsets of a tensor without sequences."""


class LoDRankTable(list[tuple[int, int]]):
    """Sequences by their lengths, the longest first: (number of the sequence, its length).

    Attributes:
        coarse: offsets of the levels above the sequences.
        numbers: the numbers of the sequences.
        lengths: their lengths.
    """

    coarse = Lod()
    numbers = lengths = np.zeros(0, np.int64)

    @classmethod
    def of(cls, lod: Lod, level: int) -> LoDRankTable:
        """Rank the sequences of one level; equally long ones stay in their order.

        Args:
            lod: the offsets.
            level: which of its levels.
        """
        lengths = np.diff(lod.levels[level])
        numbers = np.argsort(-lengths, kind="stable")
        return cls.ranked(numbers, lengths[numbers], Lod(lod.levels[:level]))

    @classmethod
    def ranked(cls, numbers: Any, lengths: Any, coarse: Lod) -> LoDRankTable:
        """A table of sequences in their order.

        Args:
            numbers: of the sequences.
            lengths: of these, in this order.
            coarse: offsets of the levels above the sequences.
        """
        table = cls(zip(numbers.tolist(), lengths.tolist(), strict=True))
        table.numbers, table.lengths, table.coarse = numbers, lengths, coarse
        return table

    @property
    def level(self) -> int:
        """The level of the sequences."""
        return len(self.coarse.levels)

    @functools.cached_property
    def running(self) -> list[int]:
        """How many sequences run in every time step of the longest one."""
        steps = np.arange(self.lengths[0] if self else 0)
        return np.searchsorted(-self.lengths, -steps, side="left").tolist()

    @functools.cached_property
    def spans(self) -> list[slice]:
        """Where every time step lies, if all lie one after another."""
        ends = itertools.accumulate(self.running)
        return [slice(end - count, end) for count, end in zip(self.running, ends, strict=True)]

    @functools.cached_property
    def offsets(self) -> np.ndarray[Any, Any]:
        """Offsets of the sequences where these lie one after another, in their own order."""
        lengths = np.empty_like(self.lengths)
        lengths[self.numbers] = self.lengths
        return np.concatenate([[0], np.cumsum(lengths)])

    @functools.cached_property
    def members(self) -> np.ndarray[Any, Any]:
        """The row of every running sequence in every time step, one step after another."""
        running = np.array(self.running, np.int64)
        steps = np.repeat(np.arange(len(running)), running)
        ranks = np.arange(len(steps)) - np.repeat(np.cumsum(running) - running, running)
        found: np.ndarray[Any, Any] = self.offsets[self.numbers][ranks] + steps
        return found

    @functools.cached_property
    def places(self) -> np.ndarray[Any, Any]:
        """The inverse of :attr:`members`: for each row its position among the time steps."""
        found = np.empty_like(self.members)
        found[self.members] = np.arange(len(found))
        return found

    def longer_than(self, step: int) -> int:
        """How many sequences are longer than ``step``, which counts from 0."""
        return self.running[max(step, 0)] if step < len(self.running) else 0

    def items(self) -> list[tuple[int, int]]:
        """The content as a plain list."""
        return list(self)
