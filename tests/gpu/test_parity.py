"""On GPUs, too, layers and training give what was recorded from the real Paddle 1.8.5.

The recordings and what dpexec does otherwise on purpose are those of ``tests/parity``. It was the
original on processors, so tolerances are wider than there: GPUs add up in another order.
"""

from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.places import is_compiled_with_cuda, why_no_gpu
from tests.fixtures import layer_values, programs
from tests.gpu.places import replicas

if not is_compiled_with_cuda():
    pytest.skip(f"nothing was tested on a GPU: {why_no_gpu()}", allow_module_level=True)

FIXTURES = Path(__file__).parents[1] / "fixtures"
LAYER, STEPS = 2e-4, 1e-3
"""Relative tolerances of one layer, and of 20 steps of training."""


def assert_recorded(found, recorded, prefix, rtol, atol):
    wanted = {key: value for key, value in recorded.items() if key.startswith(prefix)}
    assert {prefix + name for name in found} == set(wanted)
    for name, value in found.items():
        expected = wanted[prefix + name]
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype), name
        np.testing.assert_allclose(value, expected, rtol, atol, err_msg=name)


@pytest.mark.parametrize("name", layer_values.names())
def test_layer_computes_the_recorded_values(name):
    found = layer_values.compute(name, fluid, fluid.CUDAPlace(0))
    with np.load(FIXTURES / "layer_values.npz") as recorded:
        assert_recorded(found, recorded, f"{name}/", LAYER, 1e-5)


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", programs.CASES)
def test_training_gives_recorded_losses_and_parameters(name, count, mode):
    case = programs.CASES[name]
    losses, state = programs.train(fluid, case, mode, replicas(count))
    with np.load(FIXTURES / "parity" / f"{name}.npz") as recorded:
        expected = recorded[f"loss/{'AllReduce' if case.reduce_fails else mode}/{count}"]
        np.testing.assert_allclose(losses, expected, STEPS, 1e-5 * np.abs(expected).max())
        if mode == "AllReduce":  # else the state of an optimizer is with the owner of its parameter
            assert_recorded(state, recorded, f"state/{count}/", STEPS, 1e-4)
