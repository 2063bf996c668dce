"""Empty arrays as feeds, compared with Paddle 1.8.5."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.core import EnforceNotMet

X = np.arange(8, dtype="float32").reshape(4, 2)
NONE = np.zeros((0, 2), "float32")


@pytest.fixture(autouse=True)
def programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def run(out, *feeds, devices=0, native=True):
    """What a variable is with each of some feeds."""
    strategy, exe = fluid.BuildStrategy(), fluid.Executor(fluid.CPUPlace())
    strategy.native_kernels = native
    program = fluid.CompiledProgram(fluid.default_main_program(), strategy)
    if devices:
        program = program.with_data_parallel(places=fluid.cpu_places(devices))
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    return [exe.run(program, feed=feed, fetch_list=[out])[0] for feed in feeds]


def pair():
    return fluid.data("x", [None, 2]), fluid.data("e", [None, 2])


def weights(value):
    return fluid.initializer.Constant(value)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x, e: layers.concat([x, e, x]), np.concatenate([X, X])),
        (lambda x, e: layers.concat([e, x]), X),
        (lambda x, e: layers.is_empty(e), [True]),
        (lambda x, e: layers.is_empty(x), [False]),
        (lambda x, e: layers.scale(e, 2.0), NONE),
        (lambda x, e: layers.tanh(e) + layers.relu(e), NONE),
        (lambda x, e: layers.softmax(e), NONE),
        (lambda x, e: layers.layer_norm(e), NONE),
        (lambda x, e: layers.fc(e, 3, param_attr=weights(1.0)), np.zeros((0, 3))),
        (lambda x, e: layers.matmul(e, x, transpose_y=True), np.zeros((0, 4))),
        (lambda x, e: layers.matmul(e, e, transpose_x=True), np.zeros((2, 2))),
        (lambda x, e: layers.reduce_sum(e), [0]),
        (lambda x, e: layers.reduce_sum(e, dim=0), [0, 0]),
        (lambda x, e: layers.reduce_sum(e, dim=1), np.zeros(0)),
        (lambda x, e: layers.reduce_max(e), [-np.inf]),
        (lambda x, e: layers.reduce_min(e, dim=0), [np.inf, np.inf]),
        (lambda x, e: layers.reduce_mean(e), [np.nan]),
        (lambda x, e: layers.mean(e), [np.nan]),
        (lambda x, e: layers.shape(e), [0, 2]),
        (lambda x, e: layers.transpose(e, [1, 0]), np.zeros((2, 0))),
        (lambda x, e: layers.pad(e, [1, 0, 0, 0], 1.5), [[1.5, 1.5]]),
        (lambda x, e: layers.topk(e, 1)[0], np.zeros((0, 1))),
        (lambda x, e: layers.cast(e, "int64"), NONE),
        (
            lambda x, e: layers.group_norm(layers.reshape(e, [0, 2, 1, 1]), 1),
            np.zeros((0, 2, 1, 1)),
        ),
        (lambda x, e: layers.accuracy(e, layers.cast(layers.reduce_sum(e, 1, True), "int64")), [0]),
        (lambda x, e: layers.argmax(e, 1), np.zeros(0)),
    ],
)
@pytest.mark.parametrize("native", [True, False])
def test_operators_work_on_nothing(make, expected, native):
    none, some = {"x": X, "e": NONE}, {"x": X, "e": X}
    more = {name: np.concatenate([X, X]) for name in some}
    results = run(make(*pair()), none, some, more, none, native=native)  # sizes are left open
    for found in (results[0], results[-1]):
        np.testing.assert_array_equal(found, expected)
        assert found.shape == np.shape(expected)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("norm", ["instance_norm", "group_norm"])
@pytest.mark.parametrize("shape", [(0, 4, 2, 2), (2, 4, 0, 2)])
def test_images_without_any_are_normalised_and_trained_on(norm, shape, native):
    image, _ = fluid.data("image", [None, 4, None, 2]), fluid.data("x", [None, 2])
    image.stop_gradient = False
    y = layers.group_norm(image, 2) if norm == "group_norm" else layers.instance_norm(image)
    fluid.gradients(layers.reduce_sum(y * y), [image])
    for out in (y, image.grad_name):
        fed = {"image": np.zeros(shape, "float32"), "x": X}
        for found in run(out, *[fed] * 3, native=native):
            assert found.shape == shape


def test_rows_and_words_may_be_chosen_by_nothing():
    x, ids = fluid.data("x", [None, 2]), fluid.data("ids", [None, 1], "int64")
    words = layers.embedding(ids, [3, 5])
    rows = layers.gather(x, ids)
    feed = {"x": X, "ids": np.zeros((0, 1), "int64")}
    assert (run(words, feed)[0].shape, run(rows, feed)[0].shape) == ((0, 5), (0, 2))


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_every_device_gets_nothing(devices):
    e, x = fluid.data("e", [None, 2]), fluid.data("x", [None, 2])  # the first one has no samples
    both = layers.concat([x, e])
    feed = {"x": X, "e": NONE}
    np.testing.assert_array_equal(run(both, feed, devices=devices)[0], X)
    (sizes,) = run(layers.shape(e), feed, devices=devices)
    assert sizes.tolist() == [0, 2] * devices


def train(devices, feeds):
    """Losses of a layer on both variables, with a weight of 0.5."""
    x, e = pair()
    loss = layers.mean(layers.fc(layers.concat([x, e]), 1, param_attr=weights(0.5)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.default_main_program()
    if devices:
        places = fluid.cpu_places(devices)
        program = fluid.CompiledProgram(program).with_data_parallel(loss.name, places=places)
    return [exe.run(program, feed=feed, fetch_list=[loss])[0] for feed in feeds]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (0, [[3.5], [0.9], [-1.7], [-2.85], [-6]]),
        (1, [[3.5], [0.9], [-1.7], [-2.85], [-6]]),
        (2, [[1.5, 5.5], [0.3, 1.5], [-0.9, -2.5], [-1.75, -3.95], [-2.9, -9.1]]),
    ],
)
def test_training_with_nothing_now_and_then(devices, expected):
    feeds = [{"x": X, "e": np.ones((rows, 2), "float32")} for rows in (0, 0, 0, 4, 0)]
    np.testing.assert_allclose(train(devices, feeds), expected, rtol=1e-6)


def test_devices_with_and_without():
    feeds = [[{"x": X, "e": NONE}, {"x": X, "e": X}]] * 3
    np.testing.assert_allclose(train(2, feeds), [[3.5, 3.5], [0.9, 0.9], [-1.7, -1.7]], rtol=1e-5)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_batch_without_any_sample_is_refused(devices):
    x, e = pair()
    with pytest.raises(EnforceNotMet, match=r"the batch is empty.* x of shape \[0, 2\], e of"):
        run(layers.concat([x, e]), {"x": NONE, "e": NONE}, devices=devices)


def test_training_on_no_sample_is_refused():
    with pytest.raises(EnforceNotMet, match=r"the batch is empty"):
        train(0, [{"x": NONE, "e": NONE}])


@pytest.mark.parametrize("native", [True, False])
def test_an_executor_predicts_for_no_sample(native):
    x, _ = pair()
    image = layers.reshape(layers.fc(x, 16, param_attr=weights(0.5), act="relu"), [-1, 1, 4, 4])
    out = layers.softmax(layers.reshape(layers.conv2d(image, 2, 3), [-1, 8]))
    found = run(out, *[{"x": rows, "e": rows} for rows in (X, NONE, X, NONE, X)], native=native)
    assert [rows.shape for rows in found] == [(4, 8), (0, 8), (4, 8), (0, 8), (4, 8)]
    np.testing.assert_array_equal(found[-1], found[0])
