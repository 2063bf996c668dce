"""The order of sequences by their lengths, in which loops go through them."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod

__all__ = ["LoDRankTable"]


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
        """Of every sequence in every time step, one step after another, its member's number."""
        running = np.array(self.running, np.int64)
        steps = np.repeat(np.arange(len(running)), running)
        ranks = np.arange(len(steps)) - np.repeat(np.cumsum(running) - running, running)
        found: np.ndarray[Any, Any] = self.offsets[self.numbers][ranks] + steps
        return found

    @functools.cached_property
    def places(self) -> np.ndarray[Any, Any]:
        """Of every member of every sequence, its number among the time steps."""
        found = np.empty_like(self.members)
        found[self.members] = np.arange(len(found))
        return found

    def longer_than(self, step: int) -> int:
        """How many sequences are longer than ``step``, which counts from 0."""
        return self.running[max(step, 0)] if step < len(self.running) else 0

    def items(self) -> list[tuple[int, int]]:
        """The content as a plain list."""
        return list(self)
