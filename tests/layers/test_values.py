"""Layers composed of other layers, compared with the formulas in NumPy."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers


def run(feed, *fetch):
    place = fluid.CPUPlace()
    with fluid.scope_guard(fluid.Scope()):
        return fluid.Executor(place).run(feed=feed, fetch_list=list(fetch))


def softmax(values):
    values = np.exp(values - values.max(-1, keepdims=True))
    return values / values.sum(-1, keepdims=True)


def normal(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype("float32")


def test_dice_loss():
    probabilities, labels = softmax(normal(2, 5, 3)), np.array([[0], [2], [1], [1], [0]] * 2)
    labels = labels.reshape(2, 5, 1)
    loss = layers.dice_loss(
        fluid.data("p", [2, 5, 3]), fluid.data("label", [2, 5, 1], dtype="int64")
    )
    wanted = np.eye(3)[labels[..., 0]]
    overlap = (probabilities * wanted).sum((1, 2))
    expected = (1 - 2 * overlap / (probabilities.sum((1, 2)) + wanted.sum((1, 2)) + 1e-5)).mean()
    got = run({"p": probabilities, "label": labels}, loss)[0]
    np.testing.assert_allclose(got, [expected], rtol=1e-5)


def test_npair_loss():
    anchor, positive = normal(4, 6), normal(4, 6)[::-1].copy()
    labels = np.array([0, 1, 0, 2], "float32")
    loss = layers.npair_loss(
        fluid.data("a", [4, 6]), fluid.data("p", [4, 6]), fluid.data("l", [4]), l2_reg=0.1
    )
    same = (labels[:, None] == labels[None]).astype("float32")
    targets = same / same.sum(1, keepdims=True)
    losses = -(targets * np.log(softmax(anchor @ positive.T))).sum(1, keepdims=True)
    sizes = (anchor**2).sum(1).mean() + (positive**2).sum(1).mean()
    expected = sizes * 0.25 * 0.1 + (targets * losses).sum(0).mean()
    got = run({"a": anchor, "p": positive, "l": labels}, loss)[0]
    np.testing.assert_allclose(got, [expected], rtol=1e-5)


def test_log_softmax_and_logsumexp():
    values = normal(3, 4)
    x = fluid.data("x", [None, 4])
    log, total, kept = run(
        {"x": values},
        layers.log_softmax(x),
        layers.logsumexp(x, dim=1),
        layers.logsumexp(x, dim=1, keepdim=True),
    )
    np.testing.assert_allclose(log, np.log(softmax(values)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, np.log(np.exp(values).sum(1)), rtol=1e-5)
    assert kept.shape == (3, 1)


def test_scatter_nd_adds_into_zeros():
    index = layers.assign(np.array([[1], [3], [1]], "int64"))
    out = layers.scatter_nd(index, layers.ones([3, 2], "float32"), [4, 2])
    np.testing.assert_array_equal(run({}, out)[0], [[0, 0], [2, 2], [0, 0], [1, 1]])


@pytest.mark.parametrize("dtype", [None, "int64"])
def test_full_like(dtype):
    out = layers.full_like(fluid.data("x", [None, 4]), 7, dtype=dtype)
    got = run({"x": normal(3, 4)}, out)[0]
    np.testing.assert_array_equal(got, np.full((3, 4), 7))
    assert got.dtype == np.dtype(dtype or "float32")
    assert out.stop_gradient


def test_numbers_are_exact_beyond_single_precision():
    big = 2**24 + 1
    got = run({}, layers.fill_constant([1], "int64", big))[0]
    assert got.tolist() == [big]


def test_step_counter_grows_with_every_run():
    counter = layers.autoincreased_step_counter(begin=5, step=2)
    assert layers.autoincreased_step_counter(begin=5, step=2) is counter
    executor = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        executor.run(fluid.default_startup_program())
        runs = [executor.run(fetch_list=[counter])[0].tolist() for _ in range(3)]
    assert runs == [[6], [8], [10]]


def test_accuracy_counts_into_given_variables():
    correct, total = (layers.create_tensor("int32", name) for name in ("correct", "total"))
    out = layers.accuracy(
        fluid.data("x", [None, 3]),
        fluid.data("y", [None, 1], dtype="int64"),
        k=2,
        correct=correct,
        total=total,
    )
    scores = np.array([[3, 2, 1], [1, 2, 3], [1, 3, 2]], "float32")
    feed = {"x": scores, "y": np.array([[1], [0], [1]])}
    share, hits, count = run(feed, out, correct, total)
    assert (share.item(), hits.item(), count.item()) == (pytest.approx(2 / 3), 2, 3)


def test_layers_around_shapes():
    values = normal(2, 3)
    x = fluid.data("x", [None, 3])
    numbers = fluid.data("n", [None], dtype="int64")
    got = run(
        {"x": values, "n": np.array([3, 1, 2])},
        layers.size(x),
        layers.rank(x),
        layers.reverse(x, 1),
        x[::-1],
        layers.flip(x, [0, 1]),
        layers.cumsum(numbers),
        layers.where(x > 100.0),
        layers.is_empty(x),
    )
    size, rank, reverse, index, flip, sums, nowhere, empty = got
    assert (size.item(), rank.item(), empty.item()) == (6, 2, False)
    assert rank.shape == layers.rank(x).shape == ()
    np.testing.assert_array_equal(reverse, values[:, ::-1])
    np.testing.assert_array_equal(index, values[::-1])
    np.testing.assert_array_equal(flip, values[::-1, ::-1])
    assert sums.tolist() == [3, 4, 6]
    assert nowhere.shape == (0, 2)


def test_matrices():
    square, batch = layers.diag(np.array([1, 2], "int32")), layers.eye(2, 3, batch_shape=[2])
    got = run({}, square, batch)
    np.testing.assert_array_equal(got[0], [[1, 0], [0, 2]])
    np.testing.assert_array_equal(got[1], np.stack([np.eye(2, 3)] * 2))
    with pytest.raises(TypeError, match="num_rows"):
        layers.eye(-1)
    with pytest.raises(TypeError, match="batch_shape"):
        layers.eye(2, batch_shape=[0])


def test_padding_of_images():
    image = np.arange(4, dtype="float32").reshape(1, 1, 2, 2)
    x = fluid.data("x", [None, 1, 2, 2])
    constant, edge = run(
        {"x": image},
        layers.pad2d(x, [1, 0, 0, 1], pad_value=9.0),
        layers.pad2d(x, [1, 0, 0, 1], mode="edge"),
    )
    np.testing.assert_array_equal(constant[0, 0], [[9, 9, 9], [0, 1, 9], [2, 3, 9]])
    np.testing.assert_array_equal(edge[0, 0], [[0, 1, 1], [0, 1, 1], [2, 3, 3]])
    with pytest.raises(AssertionError, match="wrap"):
        layers.pad2d(x, mode="wrap")


def test_padding_of_images_that_a_variable_tells():
    """Results and gradient are those of Paddle 1.8.5."""
    image = np.arange(4, dtype="float32").reshape(1, 1, 2, 2)
    x, paddings = fluid.data("x", [None, 1, 2, 2]), fluid.data("paddings", [4], "int32")
    x.stop_gradient = False
    padded = layers.pad2d(x, paddings, mode="reflect")
    wide = layers.pad2d(x, layers.assign(np.array([0, 0, 1, 1], "int32")), pad_value=7.0)
    (slope,) = fluid.gradients(layers.reduce_sum(padded * padded) + layers.reduce_sum(wide), x)
    feed = {"x": image, "paddings": np.array([1, 0, 0, 1], "int32")}
    got = [value[0, 0].tolist() for value in run(feed, padded, wide, slope)]
    assert got == [
        [[2, 3, 2], [0, 1, 0], [2, 3, 2]],
        [[7, 0, 1, 7], [7, 2, 3, 7]],
        [[1, 3], [17, 13]],
    ]


def test_adaptive_pooling_gives_the_size_asked_for():
    x = fluid.data("x", [None, 1, 5, 7])
    assert layers.adaptive_pool2d(x, [2, 3]).shape == (-1, 1, 2, 3)
    out, places = layers.adaptive_pool2d(x, 2, require_index=True)
    image = np.arange(35, dtype="float32").reshape(1, 1, 5, 7)
    got = run({"x": image}, out, places)
    assert got[0].ravel().tolist() == got[1].ravel().tolist() == [17, 20, 31, 34]


def test_shapes_from_variables():
    values = normal(2, 6)
    x = fluid.data("x", [None, 6])
    rows = layers.slice(layers.shape(x), axes=[0], starts=[0], ends=[1])
    reshaped = layers.reshape(x, [rows, 2, 3])
    filled = layers.fill_constant([rows, 2], "float32", 1.5)
    got = run({"x": values}, reshaped, filled)
    np.testing.assert_array_equal(got[0], values.reshape(2, 2, 3))
    np.testing.assert_array_equal(got[1], np.full((2, 2), 1.5))


def test_shapes_may_be_in_rows():
    shape = layers.fill_constant([1, 2], "int32", 2)
    (full,) = run({}, layers.fill_constant(shape, "bool", True))
    np.testing.assert_array_equal(full, [[True, True], [True, True]])


def test_random_crop_goes_on_as_in_paddle():
    out = layers.random_crop(fluid.data("x", [None, 5, 6]), [2, 3], seed=5)
    executor, image = fluid.Executor(fluid.CPUPlace()), np.arange(60, dtype="float32")
    feed = {"x": image.reshape(2, 5, 6)}
    with fluid.scope_guard(fluid.Scope()):
        executor.run(fluid.default_startup_program())
        crops = [executor.run(feed=feed, fetch_list=[out])[0] for _ in range(3)]
    assert [crop[:, 0, 0].tolist() for crop in crops] == [[1, 31], [20, 49], [9, 48]]
    assert (crops[0] - crops[0][:, :1, :1]).tolist() == [[[0, 1, 2], [6, 7, 8]]] * 2


def test_uniform_samples_fill_the_interval():
    few = layers.Uniform(2.0, 5.0).sample([500], seed=3)
    rows = layers.Uniform(np.array([0.0, -4.0], "float32"), np.array([1.0, -2.0], "float32"))
    one, two = run({}, few, rows.sample([500], seed=3))
    assert (one.shape, two.shape) == ((500,), (500, 2))
    assert 2 <= one.min() < 2.1 and 4.9 < one.max() <= 5
    assert (two[:, 0].min() >= 0) and (two[:, 1].max() <= -2) and (two[:, 1].min() < -3.9)


def test_distributions_refuse_mixed_arguments():
    x = fluid.data("x", [None, 1])
    with pytest.raises(ValueError, match="all arguments must be Variables"):
        layers.Normal(x, 1.0)
    with pytest.raises(TypeError, match="loc"):
        layers.Normal("0", 1.0)
