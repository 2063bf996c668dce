"""Mistakes raise the error classes of the real Paddle, and change nothing.

The classes are recorded by tests/fixtures/record_errors.py. Where dpexec deviates on purpose,
DEVIATIONS says how and why.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from tests.fixtures import error_programs

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "errors.json").read_text())

# scenario: (class, why)
DEVIATIONS = {
    "unknown_feed": ("ValueError", "a feed that no variable takes is an error, not a warning"),
    "parallel_feed_is_an_int": ("TypeError", "the original ignores it and then misses the feeds"),
    "parallel_batch_smaller_than_devices": (None, "any batch size works"),
    "build_matmul_mismatch": ("EnforceNotMet", "a shape error like those of all other layers"),
    "build_unknown_operator": ("MissingKernelError", "an EnforceNotMet of its own, see errors.py"),
}

USER_LINE = r"error_\w+\.py"
MENTIONS = {
    "startup_not_run": [r"fc_\d\.[wb]_0", "startup"],
    "no_feed": [r"\bx\b", r"w_0\): float32\["],
    "one_feed_missing": [r"\by\b"],
    "unknown_fetch": ["nope"],
    "fed_dim_mismatch": [r"\bx\b", r"-1, 4", r"6, 3"],
    "fed_rank_mismatch": [r"\bx\b", r"-1, 4", r"\b4\b"],
    "fed_dtype_mismatch": [r"\bx\b", "float32", "float64"],
    "fed_integers_for_floats": [r"\bx\b", "float32", "int64"],
    "fed_python_list": [r"\bx\b"],
    "batch_mismatch_between_feeds": [r"\bx\b|fc_1\.tmp_1", r"\by\b", r"\b6\b", r"\b3\b"],
    "empty_batch": [r"\bx\b|\by\b", r"\b0\b|no samples"],
    "unknown_feed": ["zzz"],
    "layers_data_dim_mismatch": ["mul", r"\bx\b", r"fc_0\.w_0", r"6, 3", r"4, 1", USER_LINE],
    "layers_data_dtype_mismatch": [r"\bx\b", "float32", "float64"],
    "id_out_of_range": ["lookup_table", "ids", r"embedding_0\.w_0", r"\b10\b", USER_LINE],
    "id_negative": ["lookup_table", "ids", r"embedding_0\.w_0", r"-1", USER_LINE],
    "ids_are_int32": ["ids", "int64", "int32"],
    "parallel_startup_not_run": [r"fc_\d\.[wb]_0", "startup"],
    "parallel_no_feed": [r"\bx\b"],
    "parallel_one_feed_missing": [r"\by\b"],
    "parallel_unknown_feed": ["zzz"],
    "parallel_unknown_fetch": ["nope"],
    "parallel_fed_dim_mismatch": [r"\bx\b", r"-1, 4", r", 3"],
    "parallel_fed_rank_mismatch": [r"\bx\b"],
    "parallel_fed_dtype_mismatch": [r"\bx\b", "float32", "float64"],
    "parallel_batch_mismatch": [r"\bx\b|fc_1\.tmp_1", r"\by\b"],
    "parallel_list_longer_than_devices": [r"\b3\b", r"\b2\b"],
    "parallel_list_shorter_than_devices": [r"\b1\b", r"\b2\b"],
    "parallel_list_dtype_mismatch": [r"\bx\b", "float32", "float64"],
    "parallel_id_out_of_range_on_one_device": ["lookup_table", r"\b10\b", USER_LINE],
    "parallel_id_out_of_range": ["lookup_table", "ids", r"embedding_0\.w_0", USER_LINE],
    "customized_gradient_missing": [r"mean_0\.tmp_0@GRAD"],
    "customized_gradient_of_one_row": [r"mean_0\.tmp_0@GRAD"],
    "persistable_fed_with_wrong_rows": ["learning_rate_0", r"\b3\b"],
    "cpu_num_zero": ["CPU_NUM|places"],
    "cpu_num_text": ["abc"],
    "build_mul_mismatch": ["mul", r"\ba\b", r"\bb\b", r"-1, 4", r"5, 3", USER_LINE],
    "build_matmul_mismatch": ["matmul", r"2, 4", r"5, 3", USER_LINE],
    "build_elementwise_mismatch": ["elementwise_add", r"2, 4", r"2, 3", USER_LINE],
    "build_concat_of_different_ranks": ["concat", r"2, 4", r"2, 4, 1", USER_LINE],
    "build_reshape_to_other_size": ["reshape2", r"2, 4", r"3, 3", USER_LINE],
    "build_conv2d_of_a_matrix": ["conv2d", r"-1, 4", USER_LINE],
    "build_embedding_of_floats": ["int64", "float32"],
    "build_minimize_of_a_vector": [r"-1, 3"],
    "build_same_parameter_other_shape": [r"\bw\b", r"4, 3", r"4, 2"],
    "build_unknown_variable": ["nope"],
    "build_unknown_operator": ["no_such_op"],
    "strategy_unknown_field": ["foo"],
}


def expected_class(name):
    return DEVIATIONS[name][0] if name in DEVIATIONS else RECORDED[name]


MISTAKES = [name for name in error_programs.SCENARIOS if expected_class(name)]


@pytest.fixture
def cpu_num(monkeypatch):
    """Keep what a scenario does to CPU_NUM inside the test."""
    monkeypatch.setenv("CPU_NUM", "1")


@pytest.mark.parametrize("name", error_programs.SCENARIOS)
def test_mistake_raises_the_recorded_class(name, cpu_num):
    error, _ = error_programs.make(name, fluid)
    if expected_class(name) is None:
        assert error is None
        return
    assert type(error).__name__ == expected_class(name), repr(error)
    if expected_class(name) == "EnforceNotMet":
        assert isinstance(error, fluid.core.EnforceNotMet)


@pytest.mark.parametrize("name", MENTIONS)
def test_message_names_what_is_wrong(name, cpu_num):
    error, _ = error_programs.make(name, fluid)
    missing = [pattern for pattern in MENTIONS[name] if not re.search(pattern, str(error))]
    assert not missing, str(error)


def assert_no_traces(name, **options):
    kind = error_programs.SCENARIOS[name].world
    error, after = error_programs.make(name, fluid, lambda world: world.train(), **options)
    assert error is not None
    wanted = error_programs.correct_results(kind, fluid, **options)
    for value, correct in zip(after, wanted, strict=True):
        np.testing.assert_array_equal(value, correct)


@pytest.mark.parametrize("name", MISTAKES)
def test_next_correct_run_gives_the_numbers_it_would_have_given(name, cpu_num):
    assert_no_traces(name)


@pytest.mark.parametrize("name", [name for name in MISTAKES if name.startswith("parallel_")])
def test_next_correct_run_is_right_in_reduce_mode(name, cpu_num):
    assert_no_traces(name, mode="Reduce")


def net():
    x = fluid.data("x", [None, 4])
    return fluid.layers.mean(fluid.layers.fc(x, 3))


WRONG = {
    "a place that is none": lambda: fluid.LoDTensor().set(np.ones(3), "cpu"),
    "a variable without a name": lambda: fluid.global_scope().var(None),
    "a search for no name": lambda: fluid.global_scope().find_var(3),
    "a name of feeds": lambda: fluid.Executor(fluid.CPUPlace()).run(feed_var_name=None),
    "a name of fetches": lambda: fluid.Executor(fluid.CPUPlace()).run(fetch_var_name=3),
    "return_merged": lambda: fluid.Executor(fluid.CPUPlace()).run(return_merged="yes"),
    "a strategy": lambda: fluid.CompiledProgram(fluid.Program(), {"fuse": True}),
    "a way to run": lambda: fluid.CompiledProgram(fluid.Program()).with_data_parallel(
        exec_strategy=fluid.BuildStrategy()
    ),
    "places": lambda: fluid.CompiledProgram(fluid.Program()).with_data_parallel(places=2),
    "steps per run": lambda: setattr(fluid.ExecutionStrategy(), "num_iteration_per_run", 0),
    "the name of an optimizer": lambda: fluid.optimizer.SGD(0.1, name=3),
    "a coefficient": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9, lars_coeff=None),
    "a unique name": lambda: fluid.unique_name.generate(None),
    "a name scope": lambda: fluid.name_scope(3).__enter__(),
    "the name of a file": lambda: fluid.io.save_params(None, "folder", filename={"all": 3}),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_types_of_other_arguments_are_refused(mistake):
    """Paddle's binding raises TypeError, too; its Python comes upon some later, by chance."""
    net()
    with pytest.raises(TypeError):
        WRONG[mistake]()


def test_a_seed_and_a_norm_are_checked_when_the_program_is_built():
    with pytest.raises(TypeError, match="'seed' in NormalInitializer must be int"):
        fluid.initializer.Normal(seed=[])
    clip = fluid.clip.GradientClipByNorm(-1.0)
    with pytest.raises(fluid.core.EnforceNotMet, match="max_norm must be positive"):
        fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(net())
