"""Random streams: replicas draw the parts of the numbers that one device draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexec.engine.core.random import RandomStream, minstd


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 3))
def test_stream_of_shards_together_equals_stream_of_whole_batch(sizes, width):
    total = sum(sizes)
    whole = RandomStream(3, 5, 7, (0, total)).uniform(np, (total, width))
    parts, first = [], 0
    for size in sizes:
        parts.append(RandomStream(3, 5, 7, (first, size)).uniform(np, (size, width)))
        first += size
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("other", [(4, 5, 7), (3, 6, 7), (3, 5, 8)])
def test_stream_differs_by_seed_operator_and_run(other):
    assert not np.array_equal(
        RandomStream(3, 5, 7).bits(np, (8,)), RandomStream(*other).bits(np, (8,))
    )


def test_uniform_is_uniform():
    values = RandomStream(1, 2, 3, (0, 100_000)).uniform(np, (100_000,))
    assert values.dtype == np.float32
    assert 0 <= values.min() < 0.001 and 0.999 < values.max() < 1
    assert abs(values.mean() - 0.5) < 0.005 and abs(values.var() - 1 / 12) < 0.002


def test_minstd_is_the_generator_of_the_cpp_library():
    # ISO C++ [rand.predef]: the 10000th output of a default-constructed minstd_rand
    assert minstd(1, 10_000)[-1] == 399268537
