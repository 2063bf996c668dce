"""Sets of moments, compared with sets of whole seconds."""

from itertools import pairwise

from dpexec.viz.measured import intervals
from hypothesis import given
from hypothesis import strategies as st

PAIRS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)).map(lambda p: (p[0], sum(p))))


def seconds(pairs):
    return {t for start, stop in pairs for t in range(start, stop)}


@given(PAIRS, PAIRS)
def test_intervals_are_sets_of_moments(one, other):
    a, b = intervals.union(one), intervals.union(other)
    assert seconds(a) == seconds(one)
    assert intervals.length(a) == len(seconds(one))
    assert all(x[1] < y[0] for x, y in pairwise(a))
    assert seconds(intervals.common(a, b)) == seconds(one) & seconds(other)
    assert seconds(intervals.gaps(a, (3, 18))) == set(range(3, 18)) - seconds(one)
    assert intervals.within(a, 4, 17) == len(seconds(one) & set(range(4, 17)))


@given(PAIRS, st.integers(1, 4))
def test_at_least_counts_intervals(pairs, number):
    found = {t for t in range(30) if sum(a <= t < b for a, b in pairs) >= number}
    assert seconds(intervals.at_least(pairs, number)) == found
