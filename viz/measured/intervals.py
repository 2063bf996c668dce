"""Sets of moments as sorted disjoint intervals."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the moments that lie in any of the intervals.

    Example:
        >>> union([(3, 4), (0, 2), (1, 2.5), (5, 5)])
        [(0, 2.5), (3, 4)]
    """
    merged: list[Interval] = []
    for start, stop in sorted(intervals):
        if merged and start <= merged[-1][1]:
            if stop > merged[-1][1]:
                merged[-1] = (merged[-1][0], stop)
        elif stop > start:
            merged.append((start, stop))
    return merged


def length(intervals: Iterable[Interval]) -> float:
    """Return the total length of disjoint intervals."""
    return sum(stop - start for start, stop in intervals)


def gaps(intervals: Sequence[Interval], window: Interval) -> list[Interval]:
    """Return the moments of a window that lie in none of the intervals.

    Example:
        >>> gaps([(1, 2), (4, 9)], (0, 6))
        [(0, 1), (2, 4)]
    """
    first, last = window
    edges = [first, *(edge for pair in intervals for edge in pair), last]
    free = zip(edges[::2], edges[1::2], strict=True)
    return [(max(a, first), min(b, last)) for a, b in free if min(b, last) > max(a, first)]


def common(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Return the moments that lie in both.

    Example:
        >>> common([(0, 3), (5, 8)], [(2, 6)])
        [(2, 3), (5, 6)]
    """
    found = []
    i = j = 0
    while i < len(one) and j < len(other):
        start, stop = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < stop:
            found.append((start, stop))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def within(intervals: Sequence[Interval], start: float, stop: float) -> float:
    """Return how much of the time from start to stop the intervals cover."""
    first = max(0, bisect_right(intervals, (start, start)) - 1)
    covered = 0.0
    for a, b in intervals[first:]:
        if a >= stop:
            break
        covered += max(0.0, min(b, stop) - max(a, start))
    return covered


def at_least(intervals: Iterable[Interval], number: int) -> list[Interval]:
    """Return the moments that lie in at least `number` of the intervals.

    Example:
        >>> at_least([(0, 3), (1, 4), (2, 5)], 2)
        [(1, 4)]
    """
    changes: dict[float, int] = {}
    for start, stop in intervals:
        if stop > start:
            changes[start] = changes.get(start, 0) + 1
            changes[stop] = changes.get(stop, 0) - 1
    count = 0
    found = []
    for now, following in pairwise(sorted(changes)):
        count += changes[now]
        if count >= number:
            found.append((now, following))
    return union(found)
