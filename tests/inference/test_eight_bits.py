"""Frozen nets as integers: what they compute, and what stays a simulation."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.contrib.slim.quantization import QuantizationFreezePass, QuantizationTransformPass
from dpexec.engine.kernels import available, onednn
from dpexec.framework import IrGraph
from dpexec.inference import model

exact = pytest.mark.skipif(
    not (available() and onednn.adds_bytes_exactly()),
    reason="nets of integers need oneDNN and a processor with VNNI",
)
PLACE = fluid.CPUPlace()


def net(x):
    """A block of a ResNet, a convolution of single channels, and two layers behind them."""

    def conv(x, filters, size, act=None, groups=1):
        padding = (size - 1) // 2
        x = layers.conv2d(x, filters, size, padding=padding, groups=groups, bias_attr=False)
        return layers.batch_norm(x, act=act)

    start = conv(x, 8, 3, "relu")
    y = layers.elementwise_add(conv(conv(start, 16, 3, "relu"), 8, 1), start, act="relu")
    y = layers.pool2d(conv(y, 8, 3, "relu6", groups=8), 2, "max", 2)
    y = layers.fc(layers.fc(y, 24, act="relu"), 16)
    return layers.fc(y, 5)


def frozen(folder, batches, activation="moving_average_abs_max", weight="channel_wise_abs_max",
           build=net, shape=(3, 12, 12), bits=8):  # fmt: skip
    """A model that was trained with quantizers and frozen."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 2
    scope, exe = fluid.Scope(), fluid.Executor(PLACE)
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, *shape])
        out = build(x)
        test = main.clone(for_test=True)
        loss = layers.mean(layers.square(out - 0.5))
        fluid.optimizer.SGD(0.02).minimize(loss)
    with fluid.scope_guard(scope), fluid.unique_name.guard():
        exe.run(startup)
        graphs = []
        for program, for_test in ((test, True), (main, False)):
            graph = IrGraph(fluid.core.Graph(program.desc), for_test=for_test)
            how = {"activation_quantize_type": activation, "weight_quantize_type": weight}
            how |= {"activation_bits": bits, "weight_bits": bits}
            graphs.append(QuantizationTransformPass(scope, PLACE, **how).apply(graph))
        train = fluid.CompiledProgram(graphs[1].graph).with_data_parallel(loss.name, places=[PLACE])
        for batch in batches:
            exe.run(train, feed={"x": batch}, fetch_list=[loss])
        freeze = QuantizationFreezePass(
            scope, PLACE, weight_bits=bits, activation_bits=bits, weight_quantize_type=weight
        )
        made = freeze.apply(graphs[0]).to_program()
        target = made.global_block().var(out.name)
        fluid.io.save_inference_model(str(folder), ["x"], [target], exe, made)
    return str(folder)


def images(rows, seed=0, shape=(3, 12, 12)):
    return np.random.default_rng(seed).normal(size=(rows, *shape)).astype("float32")


def predictor(folder, integers, threads=1):
    config = fluid.core.AnalysisConfig(folder)
    config.set_cpu_math_library_num_threads(threads)
    if integers:
        config.enable_mkldnn()
    return fluid.core.create_paddle_predictor(config)


def predicted(made, x):
    return made.run([fluid.core.PaddleTensor(x)])[0].as_ndarray()


def types(made):
    return [op.type for op in made.program().global_block().ops]


def quantized(made):
    return [op for op in made.program().global_block().ops if op.attrs.get("use_quantizer")]


@exact
@pytest.mark.parametrize("activation", ["moving_average_abs_max", "range_abs_max"])
@pytest.mark.parametrize("weight", ["abs_max", "channel_wise_abs_max"])
def test_a_frozen_net_computes_with_integers_what_its_simulation_computes(
    tmp_path, activation, weight
):
    folder = frozen(tmp_path, [images(8, seed) for seed in range(6)], activation, weight)
    made, simulated = predictor(folder, True), predictor(folder, False)
    assert not [type for type in types(made) if type.startswith("fake_")]
    assert len(quantized(made)) == 7
    for rows in (4, 4, 7, 1, 4):
        x = images(rows, 10 + rows)
        mine, theirs = predicted(made, x), predicted(simulated, x)
        # A level of the last layer's input may be the next one, for each of its 16 numbers.
        last = quantized(made)[-1]
        weights = np.array(made.scope().find_var(last.inputs["W"][0]).get_tensor())
        level = np.abs(weights).sum(0).max() / last.attrs["Scale_in"]
        assert np.abs(mine - theirs).max() <= level
        assert np.abs(theirs).max() > 2 * level


def chain(x):
    x = layers.conv2d(x, 16, 3, padding=1, act="relu")
    return layers.tanh(layers.conv2d(layers.conv2d(x, 16, 1), 4, 3, bias_attr=False))


@exact
def test_every_number_between_layers_is_at_most_one_level_off(tmp_path):
    folder = frozen(tmp_path, [images(8, seed) for seed in range(4)], build=chain)
    made = predictor(folder, True)
    first, second, third = quantized(made)
    assert types(made).count("quantize") == 1
    assert [op.attrs["force_fp32_output"] for op in (first, second, third)] == [False, False, True]
    block = made.program().global_block()
    kinds = [block.var(op.outputs["Output"][0]).dtype for op in (first, second)]
    assert kinds == [fluid.core.VarDesc.VarType.UINT8, fluid.core.VarDesc.VarType.INT8]
    x = images(3, 9)
    simulated = fluid.Executor(PLACE)
    with fluid.scope_guard(fluid.Scope()):
        program, _, _ = fluid.io.load_inference_model(folder, simulated)
        rounders = [op for op in program.global_block().ops if op.type.startswith("fake_quantize")]
        names = [op.outputs["Out"][0] for op in rounders[1:]]
        wanted = simulated.run(program, feed={"x": x}, fetch_list=names)
    exe, names = fluid.Executor(PLACE), [op.outputs["Output"][0] for op in (first, second)]
    found = exe.run(made.program(), feed={"x": x}, fetch_list=names, scope=made.scope())
    for mine, theirs in zip(found, wanted, strict=True):
        off = np.abs(mine.astype("float32") - theirs)
        assert off.max() <= 1 and (off > 0).mean() < 0.02
        assert np.abs(theirs).max() > 100


def test_without_exact_integers_a_frozen_net_stays_a_simulation(tmp_path, monkeypatch):
    monkeypatch.setattr(onednn, "adds_bytes_exactly", lambda: False)
    folder, x = frozen(tmp_path, [images(4)]), images(5, 3)
    asked, simulated = predictor(folder, True), predictor(folder, False)
    assert not quantized(asked)
    np.testing.assert_array_equal(predicted(asked, x), predicted(simulated, x))


@exact
def test_any_number_of_threads_gives_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "available_cpus", lambda: 3)
    monkeypatch.setattr("dpexec.engine.kernels.onednn_threads._WORK", 1)
    folder = frozen(tmp_path, [images(8, seed) for seed in range(3)])
    one, x = predictor(folder, True), images(6, 5)
    for threads in (2, 3):
        np.testing.assert_array_equal(
            predicted(predictor(folder, True, threads), x), predicted(one, x)
        )


def test_scales_of_each_batch_stay_a_simulation(tmp_path):
    folder = frozen(tmp_path, [images(4)], activation="abs_max")
    made, x = predictor(folder, True), images(5, 3)
    assert not quantized(made)
    assert "fake_quantize_abs_max" in types(made)
    np.testing.assert_allclose(
        predicted(made, x), predicted(predictor(folder, False), x), rtol=1e-5, atol=1e-6
    )


def test_levels_of_other_widths_stay_a_simulation(tmp_path):
    folder = frozen(tmp_path, [images(4)], bits=6)
    assert not quantized(predictor(folder, True))


def test_frozen_nets_are_simulated_unless_integers_are_asked_for(tmp_path):
    folder = frozen(tmp_path, [images(4)])
    assert not quantized(predictor(folder, False))
    config = fluid.core.AnalysisConfig(folder)
    config.enable_mkldnn()
    config.delete_pass("cpu_quantize_pass")
    made, x = fluid.core.create_paddle_predictor(config), images(3, 1)
    assert "quantize" not in types(made)
    assert predicted(made, x).shape == (3, 5)
