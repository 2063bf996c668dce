"""Recurrent networks built from steps: the original's programs, and its numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.ir.verify import verify
from tests.fixtures import describe, recurrent_cases

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = json.loads((FIXTURES / "recurrent.json").read_text())
VALUES = np.load(FIXTURES / "recurrent.npz")
CASES = list(recurrent_cases.CASES)


@pytest.mark.parametrize("name", CASES)
def test_program_and_values_are_the_recorded_ones(name):
    main, startup, values, after = recurrent_cases.run(fluid, name)
    verify(main)
    assert describe.programs_record(main, startup) == RECORDED[name]
    for number, fetched in enumerate(zip(*values, strict=True)):
        expected = VALUES[f"{name}/{number}"]
        np.testing.assert_allclose(np.stack(fetched), expected, rtol=5e-6, atol=1e-6)
    for var, value in after.items():
        expected = VALUES[f"{name}/after/{var}"]
        np.testing.assert_allclose(value, expected, rtol=5e-6, atol=1e-6, err_msg=var)


@pytest.mark.parametrize("reduce", [False, True], ids=["all_reduce", "reduce"])
@pytest.mark.parametrize("name", CASES)
def test_losses_on_two_devices_are_the_recorded_ones(name, reduce):
    values = recurrent_cases.run(fluid, name, devices=2, reduce=reduce)[2]
    losses = np.stack([loss for (loss,) in values])
    np.testing.assert_allclose(losses, VALUES[f"{name}/parallel"], rtol=5e-6, atol=1e-6)
