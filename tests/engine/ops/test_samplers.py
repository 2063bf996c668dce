"""Samplers of classes and integers: known generators, and frequencies."""

import numpy as np
import pytest

from dpexec.engine.core.random import RandomStream
from dpexec.engine.ops import _samplers


def test_mersenne_twister_is_that_of_the_standard():
    assert _samplers.mersenne_twister(5489, 10000)[-1] == 9981545732273789042  # C++11, 26.5.5


def test_permutations_hold_every_number_once():
    for seed in (1, 7):
        assert sorted(_samplers.permutation(seed, 50)) == list(range(50))
    assert _samplers.permutation(1, 1).tolist() == [0]


def test_integers_cover_their_range():
    drawn = _samplers.integers(3, 10000, -2, 5)
    counts = np.bincount(drawn + 2, minlength=7) / 10000
    np.testing.assert_allclose(counts, 1 / 7, atol=0.02)


@pytest.mark.parametrize("seed", [0, 11])
@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (_samplers.Uniform(5), np.full(5, 0.2)),
        (_samplers.LogUniform(4), np.log((np.arange(4) + 2) / (np.arange(4) + 1)) / np.log(5)),
        (
            _samplers.Custom(
                np.array([0.1, 0.2, 0.1, 0.6]),
                np.array([3, 3, 3, -1]),
                np.array([0.4, 0.8, 0.4, 1.0]),
            ),
            [0.1, 0.2, 0.1, 0.6],
        ),
    ],
)
def test_samplers_draw_as_often_as_they_say(sampler, expected, seed):
    rng = RandomStream(seed=5, key=1, run=0)
    words = _samplers.random_words(sampler, seed, (200, 50), rng)
    drawn = sampler.draw(words)
    counts = np.bincount(drawn.reshape(-1), minlength=len(expected)) / drawn.size
    np.testing.assert_allclose(counts, expected, atol=0.02)
    probabilities = sampler.probability(np.arange(len(expected)))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-6)
