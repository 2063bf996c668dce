"""Quantization passes where Paddle fails, and their errors."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest

import dpexec as fluid
from dpexec.commands.paddle_alias import paddle_is_dpexec
from dpexec.contrib.slim.quantization import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)
from dpexec.framework import IrGraph
from tests import guides
from tests.fixtures import quantization_programs as programs

PLACE = fluid.CPUPlace()


def graph_of(program, for_test=True):
    return IrGraph(fluid.core.Graph(program.desc), for_test=for_test)


def types(graph):
    return [op.type for op in graph.to_program().global_block().ops]


def losses(case, reduce, devices=2):
    """Of training with quantizers, and the scales that it finds."""
    net = programs.CASES[case][0]
    scope, exe = fluid.Scope(), fluid.Executor(PLACE)
    main, _, _, loss = programs.built(fluid, net, scope)
    with paddle_is_dpexec():
        graph = programs.transformed(fluid, main, case, scope, False)
    strategy = fluid.BuildStrategy()
    strategy.reduce_strategy = getattr(fluid.BuildStrategy.ReduceStrategy, reduce)
    compiled = fluid.CompiledProgram(graph.graph).with_data_parallel(
        loss, strategy, places=[PLACE] * devices
    )
    found = [exe.run(compiled, feed, [loss], scope=scope)[0] for feed in programs.batches()]
    names = [node.name() for node in graph.graph.vars if node.name().endswith("scale")]
    kept = {name for name in names if scope.find_var(name) is not None}
    scales = {name: float(np.array(scope.find_var(name).get_tensor())[0]) for name in kept}
    return np.array(found), scales


@pytest.mark.parametrize("case", ["lenet_range", "resnet_moving"])
def test_all_strategies_train(case):
    """With buckets of gradients, where the original finds no parameters, and with owners of them.

    Devices of one memory share scales in Reduce mode: those that the first one found.
    """
    found, scales = losses(case, "AllReduce")
    recorded = json.loads(Path(programs.__file__).with_name("quantization.json").read_text())
    np.testing.assert_allclose(found, recorded["trained"][case]["trained"]["losses"], rtol=1e-5)
    shared, scales_of_first = losses(case, "Reduce")
    np.testing.assert_allclose(shared, found, rtol=0.02)
    assert scales.keys() == scales_of_first.keys()
    np.testing.assert_array_equal(losses(case, "Reduce")[0], shared)


@pytest.mark.parametrize("case", ["lenet_moving_channels", "resnet_moving"])
def test_training_with_quantizers_is_a_step_of_code(case):
    pytest.importorskip("numba", reason="kernels in machine code need numba")
    scope, exe = fluid.Scope(), fluid.Executor(PLACE)
    main, _, _, loss = programs.built(fluid, programs.CASES[case][0], scope)
    with paddle_is_dpexec():
        graph = programs.transformed(fluid, main, case, scope, False)
    program = graph.to_program()
    for feed in programs.batches():
        exe.run(program, feed, [loss], scope=scope)
    (engine,) = exe._engines.values()
    assert [code is not None for code in engine.runner.code.by_binding.values()] == [True]


def test_parallel_executor_takes_the_program_of_a_graph():
    scope = fluid.Scope()
    main, _, _, loss = programs.built(fluid, "lenet", scope)
    graph = graph_of(main, for_test=False)
    program = QuantizationTransformPass(scope, PLACE).apply(graph).to_program()
    executor = fluid.ParallelExecutor(False, loss, program, scope=scope)
    found = [executor.run([loss], feed=feed)[0].mean() for feed in programs.batches()]
    np.testing.assert_allclose(found[0], 2.26, atol=0.5)


def test_an_input_that_is_read_twice_is_quantized_once():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4])
        twice = x + x
    graph = AddQuantDequantPass(fluid.Scope(), PLACE).apply(graph_of(main))
    assert types(graph) == [
        "fake_quantize_dequantize_moving_average_abs_max", "elementwise_add"
    ]  # fmt: skip
    assert graph.topology_sort()[-1].input("X") == graph.topology_sort()[-1].input("Y")
    assert twice.name in graph.to_program().global_block().vars


@pytest.mark.parametrize("kind", ["abs_max", "channel_wise_abs_max"])
def test_weights_of_zero_stay_zero(kind):
    scope, exe = fluid.Scope(), fluid.Executor(PLACE)
    _, test, prediction, _ = programs.built(fluid, "lenet", scope)
    weight = scope.find_var("conv2d_0.w_0").get_tensor()
    value = np.array(weight)
    value[1:] = 0
    if kind == "abs_max":
        value[:] = 0
    weight.set(value, PLACE)
    graph = QuantizationTransformPass(scope, PLACE, weight_quantize_type=kind).apply(graph_of(test))
    feed = next(programs.batches())
    (before,) = exe.run(graph.to_program(), feed, [prediction], scope=scope)
    QuantizationFreezePass(scope, PLACE, weight_quantize_type=kind).apply(graph)
    (after,) = exe.run(graph.to_program(), feed, [prediction], scope=scope)
    np.testing.assert_allclose(after, before, rtol=1e-5)
    assert not np.array(weight)[1:].any()


def test_nets_for_other_engines_are_saved_though_they_do_not_run(tmp_path):
    scope, exe = fluid.Scope(), fluid.Executor(PLACE)
    _, test, prediction, _ = programs.built(fluid, "lenet", scope)
    graph = QuantizationTransformPass(scope, PLACE).apply(graph_of(test))
    for step in (QuantizationFreezePass(scope, PLACE), ConvertToInt8Pass(scope, PLACE)):
        step.apply(graph)
    program = TransformForMobilePass().apply(graph).to_program()
    assert [op.type for op in program.global_block().ops][:3] == [
        "quantize",
        "conv2d",
        "dequantize",
    ]
    with fluid.scope_guard(scope):
        target = program.global_block().var(prediction)
        fluid.io.save_inference_model(str(tmp_path), ["image"], [target], exe, program)
    saved = {path.name for path in tmp_path.iterdir()}
    weights = {f"{name}.w_0.int8" for name in ("conv2d_0", "conv2d_1", "fc_0")}
    assert saved == {"__model__", "conv2d_0.b_0", "conv2d_1.b_0", "fc_0.b_0", *weights}
    assert (tmp_path / "fc_0.w_0.int8").stat().st_size < 100
    with pytest.raises(fluid.core.EnforceNotMet, match="operator quantize: input Input is missing"):
        exe.run(program, next(programs.batches()), [prediction], scope=scope)


@pytest.mark.parametrize("pattern", ["skip", ["other", "skip"]])
def test_name_scopes_take_operators_out(pattern):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4])
        with fluid.name_scope("skip_it"):
            y = fluid.layers.fc(x, 4, act="relu")
        fluid.layers.fc(y, 4)
    graph = graph_of(main)
    QuantizationTransformPass(skip_pattern=pattern).apply(graph)
    pairs = AddQuantDequantPass(
        fluid.Scope(), PLACE, skip_pattern=pattern, quantizable_op_type=["relu"]
    )
    found = types(pairs.apply(graph))
    assert found.index("mul") == 0
    assert found.count("fake_quantize_abs_max") == 2
    assert not any("moving" in type for type in found)


def test_a_counter_that_is_there_is_taken():
    main, scope = fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, fluid.Program()):
        fluid.layers.autoincreased_step_counter()
        fluid.layers.fc(fluid.data("x", [None, 4]), 4)
    transform = QuantizationTransformPass(
        scope, PLACE, activation_quantize_type="range_abs_max", window_size=5
    )
    graph = transform.apply(graph_of(main, for_test=False))
    assert types(graph).count("increment") == 1
    assert scope.find_var("@STEP_COUNTER@") is None
    assert scope.find_var("scales_0") is not None


@pytest.mark.parametrize(
    ("wrong", "error", "why"),
    [
        ({"activation_quantize_type": "channel_wise_abs_max"}, AssertionError, "does not support"),
        ({"activation_quantize_type": "x"}, ValueError, "Unknown activation_quantize_type: 'x'"),
        ({"weight_quantize_type": "x"}, ValueError, "Unknown weight_quantize_type: 'x'"),
        ({"quantizable_op_type": ["relu"]}, AssertionError, "relu is not supported"),
        ({"act_preprocess_func": fluid.layers.relu}, NotImplementedError, "functions of one's own"),
    ],
)
def test_wrong_transformations_are_refused(wrong, error, why):
    with pytest.raises(error, match=why):
        QuantizationTransformPass(**wrong)


def test_what_is_missing_is_said():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        fluid.layers.fc(fluid.data("x", [None, 4]), 4)
    moving = QuantizationTransformPass(activation_quantize_type="moving_average_abs_max")
    with pytest.raises(AssertionError, match="The scope cannot be set None"):
        moving.apply(graph_of(main))
    with pytest.raises(AssertionError, match="place must not be None"):
        AddQuantDequantPass(fluid.Scope())
    with pytest.raises(AssertionError, match="lstm is not supported"):
        AddQuantDequantPass(fluid.Scope(), PLACE, quantizable_op_type=["lstm"])
    for make in (QuantizationFreezePass, ConvertToInt8Pass):
        with pytest.raises(AssertionError, match="The scope cannot be set None"):
            make(None, PLACE)
    with pytest.raises(AssertionError, match="Cannot find"):
        OutScaleForInferencePass(fluid.Scope()).apply(graph_of(main))
    with pytest.raises(AssertionError, match="graph must be the instance of IrGraph"):
        OutScaleForTrainingPass(fluid.Scope(), PLACE).apply(main)


def test_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown, names = io.StringIO(), {}
    with contextlib.redirect_stdout(shown):
        for program in guides.programs("docs/quantization.md"):
            exec(compile(program, "docs/quantization.md", "exec"), names)
    assert shown.getvalue().split("]")[0].count("'") == 6
    assert (tmp_path / "frozen" / "__model__").exists()
