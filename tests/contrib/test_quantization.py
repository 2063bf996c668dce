"""Passes of quantization against what the real PaddlePaddle 1.8.5 made of the same nets.

``tests/fixtures/record_quantization.py`` records it.
"""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.commands.paddle_alias import paddle_is_dpexec
from tests.fixtures import quantization_programs as programs

RECORDED = json.loads(Path(programs.__file__).with_name("quantization.json").read_text())["trained"]


@functools.cache
def found(case):
    with paddle_is_dpexec():
        return programs.run(fluid, case)


@pytest.fixture(params=list(RECORDED))
def both(request):
    return found(request.param), RECORDED[request.param]


@pytest.mark.parametrize("stage", ["trained", "quantized", "frozen"])
def test_programs_are_those_of_paddle(both, stage):
    mine, real = (each[stage] for each in both)
    assert mine["ops"] == real["ops"]
    np.testing.assert_allclose(mine["learned"], real["learned"], rtol=1e-5)


def test_training_is_that_of_paddle(both):
    mine, real = both
    np.testing.assert_allclose(mine["trained"]["losses"], real["trained"]["losses"], rtol=1e-5)
    assert list(mine["trained"]["values"]) == list(real["trained"]["values"])
    for name, value in real["trained"]["values"].items():
        np.testing.assert_allclose(
            mine["trained"]["values"][name], value, rtol=1e-4, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize("stage", ["quantized", "frozen"])
def test_predictions_are_those_of_paddle(both, stage):
    mine, real = both
    np.testing.assert_allclose(mine[stage]["predicted"], real[stage]["predicted"], rtol=1e-5)


def test_bytes_are_those_of_paddle(both):
    mine, real = both
    assert mine["int8"] == real["int8"]
    assert mine["mobile"] == real["mobile"]
