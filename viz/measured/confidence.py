"""How sure a median is: intervals that hold it in 19 of 20 cases, without any assumption."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Sure:
    """A median, and where it lies for sure.

    Args:
        median: Of the values.
        low: Below it the median of what was sampled lies in one case of 40 at most.
        high: Above it, likewise.
    """

    median: float
    low: float
    high: float


def sure(values: Sequence[float]) -> Sure:
    """Return the median of some values with its interval, by order statistics.

    The number of values below the true median is binomial, whatever they are distributed like; so
    two of the sorted values hold it between them. Less than six values hold it less surely, and
    the interval is all of them.

    Args:
        values: One at least; each independent of the others.

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
