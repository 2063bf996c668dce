"""Learning-rate schedules: Paddle's recorded rates, step by step."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import training_pieces

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = json.loads((FIXTURES / "training_pieces.json").read_text())["schedules"]


@pytest.mark.parametrize("name", training_pieces.SCHEDULES)
def test_rates_are_the_recorded_ones(name):
    rates = training_pieces.schedule(name, fluid)
    assert rates.dtype == np.float32
    np.testing.assert_allclose(rates, RECORDED[name], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["piecewise", "piecewise_unsorted"])
def test_rates_that_are_only_chosen_are_exact(name):
    np.testing.assert_array_equal(training_pieces.schedule(name, fluid), RECORDED[name])


@pytest.mark.parametrize("name", training_pieces.SCHEDULES)
def test_every_operator_has_the_role_of_schedules(name):
    training_pieces.SCHEDULES[name](fluid.layers)
    program = fluid.default_main_program()
    ops = program.global_block().ops
    assert {op.role for block in program.blocks for op in block.ops} == {16}
    assert ops[0].type == "increment"  # before everything else


def test_schedules_of_one_program_share_the_counter():
    fluid.layers.exponential_decay(0.1, 10, 0.5)
    fluid.layers.cosine_decay(0.1, 10, 5)
    ops = fluid.default_main_program().global_block().ops
    assert [op.type for op in ops].count("increment") == 1


def test_rate_may_start_from_a_variable():
    base = fluid.layers.create_global_var([1], 0.4, "float32", True)
    rate = fluid.layers.exponential_decay(base, 2, 0.25)
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        executor.run(fluid.default_startup_program())
        rates = [executor.run(fetch_list=[rate])[0][0] for _ in range(3)]
    np.testing.assert_allclose(rates, [0.4, 0.2, 0.1], rtol=1e-6)


def test_there_is_at_least_one_boundary():
    with pytest.raises(ValueError, match="at least one condition"):
        fluid.layers.piecewise_decay([], [0.3])


def test_numbers_of_boundaries_and_values_must_fit():
    with pytest.raises(ValueError, match="2 values and 2 boundaries"):
        fluid.layers.piecewise_decay([1, 2], [0.1, 0.2])


def test_cosine_decay_of_an_integer_is_refused():
    with pytest.raises(TypeError, match="float or Variable"):
        fluid.layers.cosine_decay(1, 10, 5)
