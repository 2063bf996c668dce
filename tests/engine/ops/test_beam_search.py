"""``beam_search`` on many sentences, compared with one sentence at a time."""

import itertools

import numpy as np
import pytest

from dpexec.engine.ops.beam_search import _best, _best_of_equal


@pytest.mark.parametrize("levels", [3, 1000])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_candidates_of_many_sentences(levels, count):
    rng = np.random.default_rng(levels + count)
    parents = np.sort(rng.integers(0, 3 * 40, 300))
    owners = parents // 3  # three beams each
    bounds = np.searchsorted(owners, np.arange(41))
    totals = rng.integers(0, levels, len(owners)).astype("float32")
    totals[rng.integers(0, len(totals), 3)] = -np.inf
    expected = [
        start + _best_of_equal(totals[start:stop], parents[start:stop], count)
        for start, stop in itertools.pairwise(bounds)
    ]
    found = _best(totals, parents, owners, bounds, count)
    assert found.tolist() == np.concatenate(expected).tolist()
