"""Seeded initial values are those of the real Paddle, recorded in initial_values.npz."""

from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import initial_values, programs

RECORDED = np.load(Path(__file__).parents[1] / "fixtures" / "initial_values.npz")
NETWORKS = ["mlp", "lenet", "resnet", "word2vec"]


TRUNCATED = [name for name in initial_values.CASES if name.startswith("truncated")]
EXACT = [name for name in initial_values.CASES if name not in TRUNCATED]


@pytest.mark.parametrize("name", EXACT)
def test_initializer_gives_the_recorded_bits(name):
    value = initial_values.value(name, fluid)
    recorded = RECORDED[f"case/{name}"]
    assert value.dtype == recorded.dtype
    np.testing.assert_array_equal(value, recorded)


@pytest.mark.parametrize("name", TRUNCATED)
def test_truncated_normal_gives_recorded_values(name):
    value = initial_values.value(name, fluid)
    recorded = RECORDED[f"case/{name}"]
    assert value.dtype == recorded.dtype
    # the original evaluates the inverse error function in float32: last digits differ in the tails
    np.testing.assert_allclose(value, recorded, rtol=0, atol=5e-6)


@pytest.mark.parametrize("network", NETWORKS)
def test_network_starts_from_recorded_values(network):
    values = initial_values.network_values(getattr(programs, network), fluid)
    recorded = {
        key.split("/")[2]: RECORDED[key]
        for key in RECORDED.files
        if key.startswith(f"network/{network}/")
    }
    assert sorted(values) == sorted(recorded)
    for name, value in recorded.items():
        np.testing.assert_array_equal(values[name], value, err_msg=name)
