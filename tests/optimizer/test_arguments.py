"""Arguments of all optimizers: schedules, clips, decay, lists and names, compared with Paddle."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import describe, optimizer_arguments

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = json.loads((FIXTURES / "optimizer_arguments.json").read_text())


@pytest.mark.parametrize("name", optimizer_arguments.OPTIMIZERS)
def test_operators_and_what_minimize_returns_are_the_recorded_ones(name):
    main, _, _, optimizer, pairs = optimizer_arguments.build(name, fluid)
    ops = describe.program_record(main)["ops"]
    assert optimizer_arguments.updates(ops) == RECORDED[name]["ops"]
    assert pairs == RECORDED[name]["pairs"]
    assert optimizer.get_opti_var_name_list() == RECORDED[name]["states"]


@pytest.mark.parametrize("name", optimizer_arguments.OPTIMIZERS)
def test_training_gives_recorded_losses_and_state(name):
    losses, state = optimizer_arguments.train(name, fluid)
    np.testing.assert_allclose(losses, RECORDED[name]["losses"], rtol=1e-5)
    assert sorted(state) == sorted(RECORDED[name]["state"])
    for variable, value in RECORDED[name]["state"].items():
        np.testing.assert_allclose(state[variable], value, rtol=1e-4, atol=1e-6, err_msg=variable)


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("name", optimizer_arguments.OPTIMIZERS)
def test_replicas_give_recorded_losses(name, devices, mode):
    """Those of AllReduce: the original cannot clip by the global norm in Reduce mode."""
    losses, state = optimizer_arguments.train(name, fluid, devices, mode)
    np.testing.assert_allclose(losses, RECORDED[name]["losses_of_devices"][str(devices)], rtol=1e-5)
    for variable, value in RECORDED[name]["state"].items():
        np.testing.assert_allclose(state[variable], value, rtol=1e-4, atol=2e-6, err_msg=variable)


def test_methods_are_those_of_the_original():
    found = optimizer_arguments.methods(fluid)
    assert {name: found.get(name) for name in RECORDED["methods"]} == RECORDED["methods"]
