"""Passes of predictors: what becomes one operator, what stays, and equal results."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.engine.kernels import available, onednn
from dpexec.engine.passes.prediction import PASSES

pytestmark = pytest.mark.skipif(
    not (available() and onednn.available()), reason="passes of predictors need oneDNN"
)


def saved(folder, build):
    """A model with random parameters and statistics, and the names of its inputs."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        found = build()
    found = found if isinstance(found, list) else [found]
    exe, rng = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0)
    with fluid.scope_guard(fluid.Scope()):
        if startup.global_block().ops:
            exe.run(startup)
        for var in main.list_vars():
            if var.persistable and var.shape:
                value = rng.uniform(0.2, 1.0, var.shape) * rng.choice([-1, 1], var.shape)
                value = abs(value) if "w_2" in var.name else value  # a variance
                value = (value / max(1.0, np.prod(var.shape[1:]) ** 0.5)).astype("float32")
                fluid.global_scope().find_var(var.name).get_tensor().set(value, exe.place)
        names = [var.name for var in main.list_vars() if var.is_data]
        fluid.io.save_inference_model(str(folder), names, found, exe, main)
    return str(folder)


def predictor(folder, optimizes=True, deleted=()):
    config = fluid.core.AnalysisConfig(folder)
    config.switch_ir_optim(optimizes)
    for name in deleted:
        config.delete_pass(name)
    return fluid.core.create_paddle_predictor(config)


def types(made):
    """Types of the operators, without those that saving adds."""
    ops = made.program().global_block().ops
    return [op.type for op in ops if op.type not in ("feed", "fetch", "scale")]


def results(made, *arrays):
    found = made.run([fluid.core.PaddleTensor(array) for array in arrays])
    return [one.as_ndarray() for one in found]


def check(folder, *arrays):
    """Results with passes and without differ in their last bits alone; returns the predictor."""
    made, plain = predictor(folder), predictor(folder, optimizes=False)
    for mine, theirs in zip(results(made, *arrays), results(plain, *arrays), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5 * np.abs(theirs).max())
    assert len(types(made)) <= len(types(plain))
    return made


def images(*shape):
    return np.random.default_rng(1).normal(size=shape).astype("float32")


@pytest.mark.parametrize("format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("bias", [None, False])
@pytest.mark.parametrize("groups", [1, 4])
def test_bias_batch_norm_residual_and_relu_become_part_of_convolutions(
    tmp_path, format, bias, groups
):
    last = format == "NHWC"

    def build():
        x = fluid.data("x", [None, 9, 9, 8] if last else [None, 8, 9, 9])
        y = x
        for act in ("relu", None):
            y = layers.conv2d(y, 8, 3, padding=1, groups=groups, bias_attr=bias, data_format=format)
            y = layers.batch_norm(y, act=act, data_layout=format)
        return layers.elementwise_add(x, y, act="relu")

    shape = (3, 9, 9, 8) if last else (3, 8, 9, 9)
    made = check(saved(tmp_path, build), images(*shape))
    assert types(made) == ["conv2d", "conv2d"]
    first, second = (op for op in made.program().global_block().ops if op.type == "conv2d")
    assert first.attrs["fuse_activation"] == second.attrs["fuse_activation"] == "relu"
    assert second.attrs["fuse_residual_connection"]


def test_a_value_that_others_read_stays(tmp_path):
    def build():
        x = fluid.data("x", [None, 4, 6, 6])
        y = layers.conv2d(x, 4, 3, padding=1, bias_attr=False)
        z = layers.batch_norm(y)
        return [layers.relu(z), layers.reduce_mean(y), z]

    made = check(saved(tmp_path, build), images(2, 4, 6, 6))
    assert types(made).count("batch_norm") == 1
    assert "relu" in types(made)


def test_filters_that_two_convolutions_read_are_folded_apart(tmp_path):
    def build():
        x = fluid.data("x", [None, 4, 6, 6])
        for _ in range(2):
            x = layers.conv2d(x, 4, 3, padding=1, bias_attr=False, param_attr="shared")
            x = layers.batch_norm(x, act="relu")
        return x

    made = check(saved(tmp_path, build), images(2, 4, 6, 6))
    assert types(made) == ["conv2d", "conv2d"]


def test_a_sum_of_an_image_with_itself_convolved_keeps_the_image(tmp_path):
    def build():
        x = layers.relu(fluid.data("x", [None, 4, 6, 6]))
        y = layers.conv2d(x, 4, 1, bias_attr=False)
        return layers.relu6(layers.elementwise_add(y, x))

    made = check(saved(tmp_path, build), images(2, 4, 6, 6))
    assert types(made) == ["relu", "conv2d"]


def test_sums_that_broadcast_stay(tmp_path):
    def build():
        x = fluid.data("x", [None, 4, 6, 6])
        y = layers.conv2d(x, 4, 3, padding=1, bias_attr=False)
        return y + layers.reduce_mean(x, dim=[2, 3], keep_dim=True)

    assert "elementwise_add" in types(check(saved(tmp_path, build), images(2, 4, 6, 6)))


@pytest.mark.parametrize("dims", [1, 2])
def test_products_with_weights_become_fc(tmp_path, dims):
    def build():
        x = fluid.data("x", [None, 5, 12] if dims == 2 else [None, 12])
        y = layers.fc(x, 20, num_flatten_dims=dims, act="relu")
        weight = layers.create_parameter([20, 7], "float32", name="weight")
        return layers.tanh(layers.matmul(y, weight))

    shape = (3, 5, 12) if dims == 2 else (3, 12)
    made = check(saved(tmp_path, build), images(*shape))
    assert types(made) == ["fc", "fc", "tanh"]
    for rows in (1, 4, 9, 4):  # other numbers of rows
        check(str(tmp_path), images(rows, *shape[1:]))


def test_products_of_two_inputs_stay(tmp_path):
    def build():
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [4, 3])
        return layers.matmul(x, y)

    assert types(check(saved(tmp_path, build), images(2, 4), images(4, 3))) == ["matmul"]


def test_a_pass_that_was_deleted_is_not_applied(tmp_path):
    def build():
        x = layers.conv2d(fluid.data("x", [None, 4, 6, 6]), 4, 3, bias_attr=False)
        return layers.fc(layers.batch_norm(x, act="relu"), 3)

    folder = saved(tmp_path, build)
    assert types(predictor(folder)) == ["conv2d", "fc"]
    names = [step.name for step in PASSES]
    made = predictor(folder, deleted=names)
    assert types(made) == types(predictor(folder, optimizes=False))
    without = predictor(folder, deleted=["conv_bn_fuse_pass"])
    assert types(without) == ["conv2d", "batch_norm", "relu", "fc"]


def test_clones_and_saved_files_keep_their_parameters(tmp_path):
    def build():
        x = layers.conv2d(fluid.data("x", [None, 4, 6, 6]), 4, 3, bias_attr=False)
        return layers.batch_norm(x, act="relu")

    folder, x = saved(tmp_path, build), images(2, 4, 6, 6)
    first = check(folder, x)
    (wanted,) = results(first, x)
    np.testing.assert_array_equal(results(first.clone(), x)[0], wanted)
    np.testing.assert_array_equal(results(predictor(folder), x)[0], wanted)
    assert first.scope().find_var("batch_norm_0.w_1") is None  # nobody reads it any more
