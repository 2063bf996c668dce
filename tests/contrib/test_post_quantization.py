"""Quantized saved nets: their predictions and scales, compared with the real Paddle.

``tests/fixtures/record_quantization.py`` records it.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.commands.paddle_alias import paddle_is_dpexec
from dpexec.contrib.slim.quantization import PostTrainingQuantization, WeightQuantization
from dpexec.contrib.slim.quantization.thresholds import kl_threshold
from tests.fixtures import post_quantization_programs as programs

RECORDED = json.loads(Path(programs.__file__).with_name("quantization.json").read_text())


def assert_noted(mine, real):
    assert [list(noted) for noted in mine] == [sorted(noted) for noted in real]
    for noted, expected in zip(mine, real, strict=True):
        for name, value in expected.items():
            if isinstance(value, str):
                assert noted[name] == value
            else:
                np.testing.assert_allclose(noted[name], value, rtol=1e-5, err_msg=name)


def in_order(attributes):
    return [{name: noted[name] for name in sorted(noted)} for noted in attributes]


@pytest.mark.parametrize("case", RECORDED["post"])
def test_nets_become_what_they_become_in_paddle(case):
    with paddle_is_dpexec():
        mine = programs.run(fluid, case)
    real = RECORDED["post"][case]
    assert mine["types"] == real["types"]
    assert_noted(in_order(mine["attributes"]), real["attributes"])
    np.testing.assert_allclose(mine["predicted"], real["predicted"], rtol=2e-5)


def test_distributions_may_lie_in_files(tmp_path):
    """The original cannot write them: names of variables have slashes."""
    with paddle_is_dpexec():
        mine = programs.run(fluid, "lenet_kl", is_use_cache_file=True, cache_dir=str(tmp_path))
    real = RECORDED["post"]["lenet_kl"]
    np.testing.assert_allclose(mine["predicted"], real["predicted"], rtol=2e-5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("case", RECORDED["weights"])
def test_weights_become_the_integers_of_paddle(case):
    with paddle_is_dpexec():
        mine = programs.run_weights(fluid, case)
    real = RECORDED["weights"][case]
    assert mine["weights"] == real["weights"]
    assert_noted(in_order(mine["attributes"]), real["attributes"])
    np.testing.assert_allclose(mine["predicted"], real["predicted"], rtol=2e-5)


def test_few_outliers_are_cut_off():
    magnitudes = np.append(np.linspace(0, 1, 5000), 10.0)
    assert kl_threshold(magnitudes) < 10


def test_thresholds_lie_where_the_numbers_are():
    """The original takes the distance from the least one, and all of these are cut off."""
    assert 5.7 < kl_threshold(np.linspace(5, 6, 5000)) < 6.1
    assert kl_threshold(np.full(10, 4.0)) == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"executor": None}, "The executor cannot be None"),
        ({"model_dir": None}, "The model_dir cannot be None"),
        ({"sample_generator": None}, "cannot be None in the same time"),
        ({"batch_size": 0}, "batch_size should be greater than 0"),
        ({"algo": "direct"}, "algo is 'direct', but should be one of"),
        ({"quantizable_op_type": ["lstm"]}, "lstm is not supported"),
    ],
)
def test_wrong_arguments_are_refused(wrong, why):
    given = {
        "executor": fluid.Executor(fluid.CPUPlace()),
        "model_dir": "nowhere",
        "sample_generator": programs.samples,
        **wrong,
    }
    with pytest.raises(AssertionError, match=why):
        PostTrainingQuantization(**given)


def test_no_batch_is_an_error(tmp_path):
    programs.saved(fluid, "lenet", str(tmp_path))
    quantization = PostTrainingQuantization(
        fluid.Executor(fluid.CPUPlace()),
        fluid.Scope(),
        str(tmp_path),
        sample_generator=lambda: iter(()),
    )
    with pytest.raises(AssertionError, match="there is no batch to look at"):
        quantization.quantize()


@pytest.mark.parametrize(
    "wrong", [{"weight_bits": 4}, {"quantizable_op_type": ["relu"]}, {"weight_quantize_type": "x"}]
)
def test_wrong_integers_are_refused(wrong):
    with pytest.raises(AssertionError):
        WeightQuantization("nowhere").quantize_weight_to_int("nowhere", **wrong)
