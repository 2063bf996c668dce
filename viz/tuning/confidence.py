"""Confidence intervals of medians, for any distribution: they hold it in 19 of 20 cases."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Sure:
    """A median with its confidence interval.

    Args:
        median: Median of the values.
        low: The true median is below this in at most one case of 40.
        high: The true median is above this in at most one case of 40.
    """

    median: float
    low: float
    high: float


def sure(values: Sequence[float]) -> Sure:
    """Return the median of some values with its interval, by order statistics.

    For any distribution, the number of values below the true median is binomial; this gives two of
    the sorted values as ends of the interval. For less than six values, the interval is their
    range, with less confidence.

    Args:
        values: At least one value; they must be independent.

    Example:
        >>> sure([3, 1, 2, 5, 4, 6, 7, 8])
        Sure(median=4.5, low=1, high=8)
        >>> sure(range(1, 16))
        Sure(median=8, low=4, high=12)
    """
    ordered = sorted(values)
    count = len(ordered)
    below, cut = 0.0, 0
    while cut < count // 2:
        below += math.comb(count, cut) / 2**count
        if below > (1 - LEVEL) / 2:
            break
        cut += 1
    cut = max(0, cut - 1)
    return Sure(statistics.median(ordered), ordered[cut], ordered[-1 - cut])
