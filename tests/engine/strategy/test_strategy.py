"""Fields of ``BuildStrategy`` and ``ExecutionStrategy``: types, defaults, checks."""

import copy
import warnings

import numpy as np
import pytest

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.strategy import fields as strategy_fields
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy


def test_build_strategy_defaults_are_fluids():
    made = BuildStrategy()
    assert made.reduce_strategy == BuildStrategy.ReduceStrategy.AllReduce
    assert str(made.gradient_scale_strategy) == "GradientScaleStrategy.CoeffNumDevice"
    assert made.memory_optimize is None
    assert made.enable_inplace is True and made.fuse_all_reduce_ops is True
    assert made.fuse_all_optimizer_ops is False and made.trainers_endpoints == []


def test_execution_strategy_defaults():
    made = ExecutionStrategy()
    assert made.num_threads == 0
    assert made.num_iteration_per_drop_scope == 1 and made.num_iteration_per_run == 1
    assert made.scheduler is None and made.trace is False


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("reduce_strategy", 1, TypeError),
        ("reduce_strategy", "Reduce", TypeError),
        ("fuse_all_reduce_ops", "yes", TypeError),
        ("memory_optimize", 1, EnforceNotMet),
        ("num_trainers", 1.5, TypeError),
        ("debug_graphviz_path", 3, TypeError),
        ("task_granularity", "node", ValueError),
        ("no_such_field", True, AttributeError),
    ],
)
def test_build_strategy_refuses(name, value, error):
    made = BuildStrategy()
    with pytest.raises(error, match=name):
        setattr(made, name, value)


def test_an_enum_is_told_its_values():
    with pytest.raises(TypeError, match=r"Strategy\.AllReduce or ReduceStrategy\.Reduce, but"):
        BuildStrategy().reduce_strategy = "Ring"


def test_an_enum_is_a_number_where_one_is_asked_for():
    build = BuildStrategy
    assert [int(value) for value in build.ReduceStrategy.__members__.values()] == [0, 1]
    assert int(build.GradientScaleStrategy.One) == 1


def test_misspelled_field_is_told_what_was_meant():
    with pytest.raises(AttributeError, match="'reduce_stratgy'; similar: reduce_strategy"):
        BuildStrategy().reduce_stratgy = 1


@pytest.mark.parametrize("value", [-1, 2.5, "4"])
def test_num_threads_refuses(value):
    with pytest.raises(TypeError, match="num_threads"):
        ExecutionStrategy().num_threads = value


def test_bools_accept_ints_and_numpy():
    made = BuildStrategy()
    made.enable_sequential_execution = 1
    assert made.enable_sequential_execution is True
    made.enable_sequential_execution = np.bool_(False)
    assert made.enable_sequential_execution is False


def test_option_without_effect_says_so_once(monkeypatch):
    monkeypatch.setattr(strategy_fields, "_said", set())
    made = BuildStrategy()
    with pytest.warns(UserWarning, match="cache_runtime_context .* no effect"):
        made.cache_runtime_context = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BuildStrategy().cache_runtime_context = True


def test_frozen_strategy_raises_on_change_only():
    made = BuildStrategy()
    made.freeze("a test")
    made.fuse_all_reduce_ops = True
    with pytest.raises(EnforceNotMet, match="fuse_all_reduce_ops"):
        made.fuse_all_reduce_ops = False
    assert made.fuse_all_reduce_ops is True


def test_strategies_cannot_be_copied():
    with pytest.raises(TypeError):
        copy.deepcopy(BuildStrategy())
