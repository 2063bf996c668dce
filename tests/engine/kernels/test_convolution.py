"""Convolutions in machine code, with and without oneDNN, in both layouts of images."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels in machine code need numba")

import dpexec as fluid
from dpexec import layers
from dpexec.engine import kernels
from dpexec.engine.kernels import convolution_primitives, onednn
from dpexec.engine.kernels.convolution_primitives import Convolution, Form
from dpexec.engine.ops._convolution import Window
from tests.engine.kernels.test_lowerings import calls, run_code, tolerance


@pytest.mark.parametrize("type", ["conv2d", "conv2d_transpose"])
def test_convolution_without_onednn(type, monkeypatch):
    monkeypatch.setattr(onednn, "available", lambda: False)
    taken = []
    for op, before, after in calls(type):
        found = run_code([op], before, after)
        if found is None:
            continue
        taken.append(op.type)
        for name, value in found.items():
            np.testing.assert_allclose(
                value, after[name], err_msg=f"{name} of {op}", **tolerance(type, after[name])
            )
    assert set(taken) == {type, f"{type}_grad"}
    assert len(taken) >= 6  # all samples but those with groups


@pytest.mark.skipif(not onednn.available(), reason="oneDNN's choice")
def test_sentences_as_images_with_one_channel():
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup):
        words = fluid.data("words", [None, 1, 30, 24])
        words.stop_gradient = False
        found = layers.conv2d(words, 8, [4, 24], bias_attr=False)
        gradient = fluid.gradients(layers.reduce_sum(layers.square(found)), words)[0]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    image = np.random.default_rng(0).normal(size=(2, 1, 30, 24)).astype("float32")
    out, d_image = exe.run(program, feed={"words": image}, fetch_list=[found, gradient])
    weight = np.array(fluid.global_scope().find_var("conv2d_0.w_0").get_tensor())[:, 0]
    expected = np.zeros((2, 30, 24), "float32")
    for row in range(27):
        window = np.einsum("nhw,fhw->nf", image[:, 0, row : row + 4], weight)
        np.testing.assert_allclose(out[:, :, row, 0], window, rtol=1e-4, atol=1e-4)
        expected[:, row : row + 4] += np.einsum("nf,fhw->nhw", 2 * window, weight)
    np.testing.assert_allclose(d_image[:, 0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not onednn.available(), reason="a defect of oneDNN")
@pytest.mark.parametrize("channels", [1, 3, 4, 5, 12])
def test_gradients_of_strided_windows_of_one_pixel(channels):
    """The library's own method would read and write behind its memory (with AVX2)."""
    geometry = {"strides": [2, 2], "paddings": [0, 0], "dilations": [1, 1], "data_format": "NCHW"}
    window = Window.of((16, channels, 8, 8), (1, 1), **geometry)
    made = Convolution(16, channels, 8, window)
    chosen = convolution_primitives._main("backward_weights", made, Form())
    assert "jit_1x1" not in chosen.method
    rng = np.random.default_rng(channels)
    image = rng.normal(size=made.image).astype("float32")
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup):
        x = fluid.data("x", [None, channels, 8, 8])
        out = layers.conv2d(x, 8, 1, stride=2, bias_attr=False)
        weight = program.all_parameters()[0]
        (gradient,) = fluid.gradients(layers.reduce_sum(layers.square(out)), weight)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    out, found = exe.run(program, feed={"x": image}, fetch_list=[out, gradient])
    expected = 2 * np.einsum("nfhw,nchw->fc", out, image[:, :, ::2, ::2])
    np.testing.assert_allclose(found[..., 0, 0], expected, rtol=1e-4, atol=1e-3)


def network():
    """A program with images in both layouts, and what to fetch of them."""
    program, startup = fluid.Program(), fluid.Program()
    program.random_seed = startup.random_seed = 3
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        image = fluid.data("image", [None, 3, 14, 13], "float32")
        label = fluid.data("label", [None, 1], "int64")
        first = layers.conv2d(image, 8, 3, padding=1, act="relu")
        normed = layers.batch_norm(layers.conv2d(first, 8, 3, padding=1, bias_attr=False))
        joined = layers.elementwise_add(normed, first, act="relu")
        small = layers.pool2d(joined, 3, "max", 2, 1)
        padded = layers.pad2d(small, [1, 0, 1, 0])  # on NumPy
        wide = layers.conv2d_transpose(padded, 5, filter_size=2, stride=2)
        active = layers.batch_norm(wide, act="relu")
        largest = layers.pool2d(active, 2, "max", 2)  # of zeros often
        mean = layers.pool2d(largest, pool_type="avg", global_pooling=True)
        guess = layers.fc(mean, 4, act="softmax")
        loss = layers.mean(layers.cross_entropy(guess, label))
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return (
        program,
        startup,
        [loss, first, normed, small, wide, "conv2d_0.w_0@GRAD", f"{small.name}@GRAD"],
    )


def trained(native):
    """What three steps give, and the parameters and statistics afterwards."""
    program, startup, fetched = network()
    strategy = fluid.BuildStrategy()
    strategy.native_kernels = native
    rng = np.random.default_rng(0)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        compiled = fluid.CompiledProgram(program).with_data_parallel(
            loss_name=fetched[0].name, build_strategy=strategy, places=fluid.cpu_places(2)
        )
        results = []
        for batch in (6, 6, 4):
            feed = {
                "image": rng.normal(size=(batch, 3, 14, 13)).astype("float32") + 2,
                "label": rng.integers(0, 4, (batch, 1)),
            }
            results += exe.run(compiled, feed=feed, fetch_list=fetched)
        persistable = sorted(v.name for v in program.list_vars() if v.persistable)
        found = [scope.find_var(name).get_tensor() for name in persistable]
        return [*results, *(np.array(tensor) for tensor in found if tensor.shape())]


def test_networks_train_alike_with_and_without_code(monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: True)
    for with_code, without in zip(trained(True), trained(False), strict=True):
        assert with_code.flags.c_contiguous
        np.testing.assert_allclose(with_code, without, rtol=2e-4, atol=2e-5)


@pytest.mark.skipif(not onednn.available(), reason="oneDNN lays channels last")
def test_what_is_computed_in_place_leaves_the_copy_in_another_order_to_others():
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup):
        image = fluid.data("image", [None, 3, 8, 8])
        found = layers.conv2d(image, 4, 3, padding=1, bias_attr=False)
        flat = layers.reshape(found, [0, 4, -1])  # lies in a copy of the channels-last result
        clipped = layers.reshape(layers.relu(flat), [0, 4, 8, 8])  # lies in its place
        both = layers.concat([clipped, found], 1)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    feed = {"image": np.random.default_rng(0).standard_normal((2, 3, 8, 8), np.float32)}
    (made,) = exe.run(program, feed, [both])
    np.testing.assert_array_equal(made[:, :4], np.maximum(made[:, 4:], 0))
    assert (made[:, 4:] < 0).any()
