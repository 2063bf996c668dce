"""The statistic of all views: medians over steps or calls, with the spread of the values.

A mean would depend on the one slice in a thousand during which the operating system did something
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Typical:
    """The median and spread of some values.

    Args:
        median: Half of the values are less, half of them more.
        spread: The median of their distances from the median.
    """

    median: float
    spread: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Typical:
        """Return the median of some values, one at least, and their spread."""
        middle = _median(values)
        return cls(middle, _median([abs(value - middle) for value in values]))

    @classmethod
    def of_rows(cls, rows: npt.NDArray[np.float64]) -> list[Typical]:
        """The same for every row of a table with one column at least."""
        middle = _medians(rows)
        spread = _medians(np.abs(rows - middle[:, None]))
        return [cls(*pair) for pair in zip(middle.tolist(), spread.tolist(), strict=True)]


def _median(values: Sequence[float]) -> float:
    """As `statistics.median`, which takes three times as long for the few values of a step."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _medians(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The median of every row."""
    ordered = np.sort(rows, axis=1)
    half = rows.shape[1] // 2
    upper = ordered[:, half]
    return upper if rows.shape[1] % 2 else (ordered[:, half - 1] + upper) / 2
