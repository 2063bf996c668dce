"""Recurrent nets of single steps: Paddle's recorded programs and values."""

from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.ir.verify import verify
from tests.fixtures import describe, packing, recurrent_cases

RECORDED = packing.load(Path(__file__).parents[1] / "fixtures" / "recurrent.npz")
CASES = list(recurrent_cases.CASES)
OTHER_PROGRAMS = {"decoder_in_training": "the original also makes gradients of counts and of bools"}


def assert_close(value, expected, name=""):
    np.testing.assert_allclose(value, expected, rtol=5e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_program_and_values_are_the_recorded_ones(name):
    main, startup, values, after = recurrent_cases.run(fluid, name)
    recorded = RECORDED[name]
    verify(main)
    if name not in OTHER_PROGRAMS:
        assert describe.programs_record(main, startup) == recorded["text"]
    for fetched, expected in zip(zip(*values, strict=True), recorded["fetched"], strict=True):
        assert_close(np.stack(fetched), expected)
    assert after.keys() == recorded["after"].keys()
    for var, value in after.items():
        assert_close(value, recorded["after"][var], var)


@pytest.mark.parametrize("reduce", [False, True], ids=["all_reduce", "reduce"])
@pytest.mark.parametrize("name", [name for name in CASES if "parallel" in RECORDED[name]])
def test_losses_on_two_devices_are_the_recorded_ones(name, reduce):
    values = recurrent_cases.run(fluid, name, devices=2, reduce=reduce)[2]
    assert_close(np.stack([loss for (loss,) in values]), RECORDED[name]["parallel"])
