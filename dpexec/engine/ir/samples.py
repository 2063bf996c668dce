"""Sample calls of operators: what the contract test and the documentation use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Sample", "SampleRng"]


class SampleRng:
    """Deterministic sample inputs, float64 and int64."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def normal(self, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Standard normal numbers."""
        return self._rng.standard_normal(tuple(shape))

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Uniform numbers in [low, high)."""
        return self._rng.uniform(low, high, tuple(shape))

    def integers(self, low: int, high: int, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Uniform integers in [low, high)."""
        return self._rng.integers(low, high, tuple(shape))

    def away_from(
        self, value: float, shape: Sequence[int], gap: float = 0.1
    ) -> np.ndarray[Any, Any]:
        """Normal numbers at least ``gap`` away from ``value``: for functions with a kink there."""
        offset = self.normal(shape)
        return value + offset + np.copysign(gap, offset)

    def distinct(self, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Numbers that differ pairwise by at least 0.1: for functions that choose by order."""
        return self._rng.permutation(int(np.prod(shape))).reshape(shape) * 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """One legal call of an op, for the contract test and the documentation.

    Args:
        inputs: array, list of arrays (for ``[]`` slots) or SelectedRows per slot.
        attrs: attributes that differ from their defaults.
        grad: input slots whose gradient is checked; None for all float ones, () for none.
        expected: outputs by slot, where they are known independently.
        deviates: why outputs or gradients (``X@GRAD``) are not those of the real Paddle, by slot;
            ``*`` where it cannot run this call at all. Each is a row for users in
            docs/differences.md: ``"what Paddle does; dpexec does something else"``.
        counts: variables in an output slot, where neither inputs nor attributes tell.
        smooth: False at a kink, where finite differences do not give the gradient.
    """

    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    grad: tuple[str, ...] | None = None
    expected: Mapping[str, Any] = field(default_factory=dict)
    deviates: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    smooth: bool = True
