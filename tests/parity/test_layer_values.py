"""Every layer computes, forward and backward, what the real Paddle computes."""

from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import layer_values

RECORDED = np.load(Path(__file__).parents[1] / "fixtures" / "layer_values.npz")


@pytest.mark.parametrize("name", layer_values.names())
def test_layer_computes_the_recorded_values(name):
    found = layer_values.compute(name, fluid)
    recorded = {k.split("/", 1)[1]: k for k in RECORDED.files if k.startswith(name + "/")}
    assert sorted(found) == sorted(recorded)
    for variable, key in recorded.items():
        wanted = RECORDED[key]
        assert found[variable].dtype == wanted.dtype, variable
        assert found[variable].shape == wanted.shape, variable
        np.testing.assert_allclose(found[variable], wanted, rtol=2e-5, atol=1e-6, err_msg=variable)
