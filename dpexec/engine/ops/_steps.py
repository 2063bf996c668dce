"""Sequences of different lengths, computed step by step, all that still run at once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


class Steps:
    """The order in which recurrent operators work through sequences.

    The longest sequence comes first. Step t has a row of every sequence that is longer than t, so
    those that a step goes on with are always its first ones. Operators work on arrays in which
    the rows of a step lie together, step after step.

    Args:
        starts: first row of every sequence.
        lengths: number of rows of every sequence.
        is_reverse: whether steps go from the end of sequences to their begin.

    Attributes:
        order: numbers of the sequences, the longest first; equally long ones stay as they are.
        counts: how many sequences are in each step.
        starts: first row of each step.
        spans: first row, and the one after the last, of each step.
        positions: which of the sequences, in this order, a row of the steps is of.
        rows: where the row of a sequence lies, for every row of the steps.
        last: the row of the steps that ends a sequence, for those that are not empty.
    """

    def __init__(
        self,
        starts: np.ndarray[Any, Any],
        lengths: np.ndarray[Any, Any],
        is_reverse: bool = False,
    ) -> None:
        self.order = np.argsort(-lengths, kind="stable")
        longest = int(lengths.max(initial=0))
        ends = np.cumsum(np.bincount(lengths, minlength=longest + 1))[:longest]
        self.counts = len(lengths) - ends
        bounds = np.concatenate([[0], np.cumsum(self.counts)])
        self.starts = bounds[:-1]
        self.spans: list[tuple[int, int]] = list(itertools.pairwise(bounds.tolist()))
        step = np.repeat(np.arange(longest), self.counts)
        self.positions = np.arange(len(step)) - bounds[step]
        owner = self.order[self.positions]
        offset = lengths[owner] - 1 - step if is_reverse else step
        self.rows = starts[owner] + offset
        self.last = bounds[lengths[self.order[: self.running]] - 1] + np.arange(self.running)

    @property
    def running(self) -> int:
        """How many sequences there are that are not empty."""
        return int(self.counts[0]) if len(self.counts) else 0

    def gather(self, xp: Any, values: Any) -> Any:
        """Rows of sequences in the order of the steps.

        Args:
            xp: NumPy, or what has its interface.
            values: ``(rows, ...)``, sequence after sequence.
        """
        return values[xp.asarray(self.rows)]

    def scatter(self, xp: Any, values: Any, rows: int | None = None) -> Any:
        """Rows of steps back in the order of the sequences.

        Args:
            xp: NumPy, or what has its interface.
            values: ``(rows of steps, ...)``.
            rows: how many the result has, if some belong to no sequence; they are 0.
        """
        shape = values.shape if rows is None else (rows, *values.shape[1:])
        out = (
            xp.empty(shape, values.dtype)
            if shape == values.shape
            else xp.zeros(shape, values.dtype)
        )
        out[xp.asarray(self.rows)] = values
        return out

    def first(self, xp: Any, states: Any) -> Any:
        """Initial states of the sequences that are not empty, the longest first.

        Args:
            xp: NumPy, or what has its interface.
            states: ``(sequences, ...)``, or None, which is returned then.
        """
        return None if states is None else states[xp.asarray(self.order[: self.running])]

    def spread(self, xp: Any, values: Any) -> Any:
        """A row per sequence that is not empty, the longest first, back in their own order.

        Args:
            xp: NumPy, or what has its interface.
            values: ``(running, ...)``.

        Returns:
            ``(sequences, ...)``; 0 for empty ones.
        """
        out = xp.zeros((len(self.order), *values.shape[1:]), values.dtype)
        out[xp.asarray(self.order[: self.running])] = values
        return out

    def totals(self, xp: Any, values: Any) -> Any:
        """Sums over the steps of every sequence that is not empty, the longest first.

        Args:
            xp: NumPy, or what has its interface.
            values: ``(rows of steps, ...)``.
        """
        out = xp.zeros((self.running, *values.shape[1:]), values.dtype)
        for begin, end in self.spans:
            out[: end - begin] += values[begin:end]
        return out

    def before(self, xp: Any, values: Any, first: Any) -> Any:
        """For every row of the steps the row of the same sequence in the step before.

        Args:
            xp: NumPy, or what has its interface.
            values: ``(rows of steps, ...)``.
            first: what is before the first step; None for zeros.
        """
        out = xp.empty_like(values)
        out[: self.running] = 0 if first is None else first
        for (begin, _), (now, end) in itertools.pairwise(self.spans):
            out[now:end] = values[begin : begin + end - now]
        return out
