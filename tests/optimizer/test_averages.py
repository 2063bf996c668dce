"""Averaged parameters and Lookahead, compared with Paddle; optimizers that are refused."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import average_pieces

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = json.loads((FIXTURES / "averages.json").read_text())


@pytest.mark.parametrize(("devices", "mode"), [(1, "AllReduce"), (2, "AllReduce"), (2, "Reduce")])
@pytest.mark.parametrize("name", average_pieces.CASES)
def test_values_are_those_of_the_original_with_all_reduce(name, devices, mode):
    found = average_pieces.train(name, fluid, devices, mode)
    assert found.keys() == RECORDED[name]["values"].keys()
    for when, params in RECORDED[name]["values"].items():
        for param, value in params.items():
            np.testing.assert_allclose(
                found[when][param], value, rtol=1e-4, atol=1e-6, err_msg=f"{param} {when}"
            )


@pytest.mark.parametrize("name", average_pieces.CASES)
def test_operators_are_those_of_the_original(name):
    assert average_pieces.programs(name, fluid) == RECORDED[name]["programs"]


def test_clone_for_testing_has_no_slow_parameters():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        average_pieces.CASES["lookahead"](fluid)
    types = [op.type for op in main.clone(for_test=True).global_block().ops]
    assert "conditional_block" not in types and "mean" in types


def test_steps_that_are_integers_limit_the_decay():
    fluid.optimizer.SGD(0.1).minimize(
        fluid.layers.mean(fluid.layers.fc(fluid.data("x", [2, 3]), 1))
    )
    steps = fluid.layers.autoincreased_step_counter(begin=0)
    average = fluid.optimizer.ExponentialMovingAverage(0.15, thres_steps=steps)
    average.update()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 3), "float32")}
    decays = [exe.run(feed=feed, fetch_list=[average._decay_var])[0].item() for _ in range(3)]
    assert decays == pytest.approx([1 / 10, 0.15, 0.15])  # 2 / 11 is more


@pytest.mark.parametrize("name", average_pieces.CASES)
def test_reduce_and_all_reduce_agree(name):
    one, other = (average_pieces.train(name, fluid, 2, mode) for mode in ("AllReduce", "Reduce"))
    for when in one:
        for param in one[when]:
            np.testing.assert_allclose(one[when][param], other[when][param], rtol=1e-6)


@pytest.mark.parametrize("options", [{"alpha": 1.5}, {"k": 0}, {"k": 2.0}])
def test_lookahead_refuses_wrong_arguments(options):
    with pytest.raises(AssertionError, match=r"alpha|k should be"):
        fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), **options)


def test_lookahead_needs_an_inner_optimizer():
    with pytest.raises(AssertionError, match="inner optimizer"):
        fluid.optimizer.LookaheadOptimizer(None)


def test_clone_for_test_is_without_lookahead():
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), 1))
    fluid.optimizer.LookaheadOptimizer(fluid.optimizer.SGD(0.1), k=2).minimize(loss)
    test = fluid.default_main_program().clone(for_test=True)
    assert [op.type for op in test.global_block().ops] == ["mul", "elementwise_add", "mean"]
