"""Sequences of different lengths in ONNX: rows one after another, and a vector of lengths.

Where an operator of ONNX needs sequences of one length, rows are padded before it and extracted
after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.onnx.exporting.builder import Builder, Value

__all__ = ["Rows", "spread"]

_ZERO, _ONE = np.array(0, np.int64), np.array(1, np.int64)


class Rows:
    """The rows of sequences.

    Args:
        g: the graph.
        lengths: lengths of the sequences, int64.
    """

    def __init__(self, g: Builder, lengths: Value) -> None:
        self.g, self.lengths = g, lengths
        self.starts: Value = g.CumSum(lengths, _ZERO, exclusive=1)
        self._known: dict[str, Value] = {}

    def _once(self, name: str, make: Any) -> Value:
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]

    @property
    def ends(self) -> Value:
        """For each sequence, the row after its last one."""
        return self._once("ends", lambda: self.g.Add(self.starts, self.lengths))

    @property
    def numbers(self) -> Value:
        """The row numbers: 0, 1, ..."""
        g = self.g

        def make() -> Value:
            total = g.reduce("ReduceSum", self.lengths, None)
            made: Value = g.Range(_ZERO, total, _ONE)
            return made

        return self._once("numbers", make)

    @property
    def owners(self) -> Value:
        """For each row, the number of its sequence."""
        g = self.g

        def make() -> Value:
            after = g.GreaterOrEqual(g.Unsqueeze(self.numbers, [1]), g.Unsqueeze(self.ends, [0]))
            made: Value = g.reduce("ReduceSum", g.cast(after, np.int64), [1])
            return made

        return self._once("owners", make)

    @property
    def places(self) -> Value:
        """For each row, its position in its sequence."""
        g = self.g
        return self._once("places", lambda: g.Sub(self.numbers, g.Gather(self.starts, self.owners)))

    @property
    def longest(self) -> Value:
        """The greatest length."""
        return self._once("longest", lambda: self.g.reduce("ReduceMax", self.lengths, None))

    def grid(self, time_first: bool = False, steps: Any = None) -> tuple[Value, Value]:
        """For each step of the padded sequences, its row, and whether there is one.

        Args:
            time_first: (steps, sequences) instead of (sequences, steps).
            steps: number of steps; by default that of the longest sequence.
        """
        g = self.g
        times = g.Range(_ZERO, self.longest if steps is None else steps, _ONE)
        along, across = (1, 0) if time_first else (0, 1)
        times = g.Unsqueeze(times, [along])
        there = g.Less(times, g.Unsqueeze(self.lengths, [across]))
        rows = g.Add(times, g.Unsqueeze(self.starts, [across]))
        return g.Where(there, rows, _ZERO), there

    def padded(
        self,
        x: Value,
        rank: int,
        fill: Value | None,
        time_first: bool = False,
        steps: Any = None,
    ) -> Value:
        """Sequences of one length.

        Args:
            x: the rows.
            rank: number of dimensions of x.
            fill: value of the steps after the end of a sequence; None if it does not matter.
            time_first: see :meth:`grid`.
            steps: see :meth:`grid`.
        """
        g = self.g
        rows, there = self.grid(time_first, steps)
        made: Value = g.Gather(x, rows)
        if fill is None:
            return made
        there = g.Unsqueeze(there, list(range(2, rank + 1))) if rank > 1 else there
        made = g.Where(there, made, fill)
        return made

    def taken_out(self, padded: Value, steps: Any = None, time_first: bool = False) -> Value:
        """The rows of padded sequences.

        Args:
            padded: the padded sequences, (sequences, steps, ...).
            steps: number of steps; by default that of the longest sequence.
            time_first: whether it is (steps, sequences, ...).
        """
        g = self.g
        places = (self.places, self.owners) if time_first else (self.owners, self.places)
        index = g.Concat(*(g.Unsqueeze(each, [1]) for each in places), axis=1)
        made: Value = g.GatherND(padded, index)
        return made

    def turned(self, x: Value) -> Value:
        """The rows of each sequence in the opposite order."""
        g = self.g
        ends = g.Gather(self.ends, self.owners)
        made: Value = g.Gather(x, g.Sub(g.Sub(ends, _ONE), self.places))
        return made


def spread(g: Builder, starts: Value, lengths: Value) -> Value:
    """The row numbers of pieces, given the first row and the length of each."""
    rows = Rows(g, lengths)
    made: Value = g.Add(g.Gather(starts, rows.owners), rows.places)
    return made


def interleaved(g: Builder, several: Sequence[Value]) -> Value:
    """Join vectors into one: the first elements of all of them, then the second ones, ..."""
    parts = [g.Unsqueeze(each, [1]) for each in several]
    return g.reshape(g.Concat(*parts, axis=1), -1)
