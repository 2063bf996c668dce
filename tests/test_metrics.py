"""Metrics, averages, flags and memory estimates against the real Paddle's."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.flags import Flags
from tests.fixtures import metric_cases

RECORDED = json.loads((Path(__file__).parent / "fixtures" / "metrics.json").read_text())


def assert_like(found, recorded):
    if isinstance(recorded, list):
        assert isinstance(found, list)
        assert len(found) == len(recorded)
        for one, other in zip(found, recorded, strict=True):
            assert_like(one, other)
    elif isinstance(recorded, float) and not isinstance(found, str):
        assert found == pytest.approx(recorded, rel=1e-12)
    else:
        assert found == recorded


@pytest.mark.parametrize("case", metric_cases.CASES, ids=lambda case: case.__name__)
def test_values_and_refusals_are_the_recorded_ones(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # WeightedAverage is deprecated, flags have no effect
        found = json.loads(json.dumps(case(fluid)))
    assert_like(found, RECORDED[case.__name__])


def test_accuracy_does_not_change_what_it_was_given():
    value = np.array([0.5])
    metric = fluid.metrics.Accuracy()
    metric.update(value, 1)
    metric.update(value, 1)
    assert value == [0.5]


def test_auc_refuses_what_is_no_probability():
    with pytest.raises(ValueError, match="between 0 and 1"):
        fluid.metrics.Auc("auc").update(np.array([[0.0, 1.5]]), np.array([[1]]))


def test_average_says_that_it_is_deprecated():
    with pytest.warns(Warning, match=r"fluid\.metrics\.Accuracy"):
        fluid.average.WeightedAverage()


def test_flag_without_effect_says_so_once():
    flags = Flags()
    flags["FLAGS_benchmark"] = False  # the default: nothing to say
    with pytest.warns(UserWarning, match="FLAGS_benchmark is accepted but has no effect"):
        flags["FLAGS_benchmark"] = True
    flags["FLAGS_benchmark"] = False
    flags["FLAGS_benchmark"] = True
    assert flags["FLAGS_benchmark"] is True


def test_unknown_flag_lists_the_known():
    with pytest.raises(ValueError, match=r"FLAGS_nope cannot get .* FLAGS_benchmark"):
        fluid.get_flags("FLAGS_nope")


def test_chunks_are_arrays_where_counts_are():
    metric = fluid.metrics.ChunkEvaluator()
    metric.update(10, 9, 8)
    assert metric.eval() == (0.8, 8 / 9, 2 * 0.8 * (8 / 9) / (0.8 + 8 / 9))
    metric.update(*(np.array([count]) for count in (3, 4, 2)))
    for value, wanted in zip(metric.eval(), (10 / 13, 10 / 13, 10 / 13), strict=True):
        assert value.shape == (1,)  # as in Paddle
        np.testing.assert_allclose(value, [wanted], rtol=1e-15)
