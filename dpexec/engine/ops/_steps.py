"""Time steps of sequences of different lengths: each step computes all unfinished sequences."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


class Steps:
    """The order in which recurrent operators compute the rows of sequences.

    The longest sequence comes first. Step t has a row of every sequence that is longer than t, so
    the sequences that continue are always the first ones of a step. Operators work on arrays in
    which the rows of a step are contiguous, step after step.

    Args:
        starts: first row of every sequence.
        lengths: number of rows of every sequence.
        is_reverse: whether steps go from the end of sequences to their beginning.

    Attributes:
        order: numbers of the sequences, the longest first; ties keep their order.
        counts: number of sequences in each step.
        starts: first row of each step.
        spans: first row, and one behind the last row, of each step.
        positions: for every row of the steps, the position of its sequence in ``order``.
        rows: for every row of the steps, its row number in the input.
        last: for every nonempty sequence, its last row in the steps.
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
        """The number of nonempty sequences."""
        return int(self.counts[0]) if len(self.counts) else 0

    def gather(self, xp: Any, values: Any) -> Any:
        """Rows of sequences in the order of the steps.

        Args:
            xp: NumPy, or a module with its interface.
            values: ``(rows, ...)``, sequence after sequence.
        """
        return values[xp.asarray(self.rows)]

    def scatter(self, xp: Any, values: Any, rows: int | None = None) -> Any:
        """Rows of steps back in the order of the sequences.

        Args:
            xp: NumPy, or a module with its interface.
            values: ``(rows of steps, ...)``.
            rows: number of rows of the result, if some belong to no sequence; these are 0.
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
        """Initial states of the nonempty sequences, the longest first.

        Args:
            xp: NumPy, or a module with its interface.
            states: ``(sequences, ...)``, or None, which is returned then.
        """
        return None if states is None else states[xp.asarray(self.order[: self.running])]

    def spread(self, xp: Any, values: Any) -> Any:
        """Reorder a row per nonempty sequence, longest first, to the order of the sequences.

        Args:
            xp: NumPy, or a module with its interface.
            values: ``(running, ...)``.

        Returns:
            ``(sequences, ...)``; 0 for empty ones.
        """
        out = xp.zeros((len(self.order), *values.shape[1:]), values.dtype)
        out[xp.asarray(self.order[: self.running])] = values
        return out

    def totals(self, xp: Any, values: Any) -> Any:
        """Sums over the steps of every nonempty sequence, the longest first.

        Args:
            xp: NumPy, or a module with its interface.
            values: ``(rows of steps, ...)``.
        """
        out = xp.zeros((self.running, *values.shape[1:]), values.dtype)
        for begin, end in self.spans:
            out[: end - begin] += values[begin:end]
        return out

    def before(self, xp: Any, values: Any, first: Any) -> Any:
        """For every row of the steps, the row of the same sequence in the previous step.

        Args:
            xp: NumPy, or a module with its interface.
            values: ``(rows of steps, ...)``.
            first: the rows before the first step; None for zeros.
        """
        out = xp.empty_like(values)
        out[: self.running] = 0 if first is None else first
        for (begin, _), (now, end) in itertools.pairwise(self.spans):
            out[now:end] = values[begin : begin + end - now]
        return out
