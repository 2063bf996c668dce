"""Sequence layers on several devices, and their errors."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers
from dpexec.engine.core.errors import MissingGradientError

CPU = fluid.CPUPlace()


def sequences(lengths, width=1, dtype="float32"):
    """Numbers from 0 on, in sequences of these lengths."""
    count = sum(lengths)
    rows = np.arange(count * width, dtype=dtype).reshape(count, width)
    return fluid.create_lod_tensor(rows, [lengths], CPU)


def run(feed, *fetch):
    with fluid.scope_guard(fluid.Scope()):
        return fluid.Executor(CPU).run(feed=feed, fetch_list=list(fetch), return_numpy=False)


def test_updates_are_scattered_through_all_dimensions_of_rows():
    x, rows = fluid.data("x", [None, 2, 3]), np.arange(12, dtype="float32").reshape(2, 2, 3)
    places = [
        fluid.data(name, [None, 1], dtype, 1) for name, dtype in (("i", "int64"), ("u", "f4"))
    ]
    x.stop_gradient = places[1].stop_gradient = False
    out = layers.sequence_scatter(x, *places)
    gradient = fluid.gradients(layers.reduce_sum(out * out), places[1])[0]
    updates = fluid.create_lod_tensor(np.array([[10.0], [20.0], [30.0]], "f4"), [[2, 1]], CPU)
    index = fluid.create_lod_tensor(np.array([[4], [0], [5]]), [[2, 1]], CPU)
    found, slopes = map(np.array, run({"x": rows, "i": index, "u": updates}, out, gradient))
    assert found.ravel().tolist() == [20, 1, 2, 3, 14, 5, 6, 7, 8, 9, 10, 41]
    assert slopes.ravel().tolist() == [28, 40, 82]


def test_masks_of_lengths_that_are_no_integers():
    lengths = np.array([0.5, 3, 2], "float32")
    (mask,) = run({"x": lengths}, layers.sequence_mask(fluid.data("x", [3]), dtype="int32"))
    assert np.array(mask).tolist() == [[1, 0, 0], [1, 1, 1], [1, 1, 0]]


def mixed_loss():
    """A loss that depends on nearly every layer on sequences."""
    words = layers.fc(fluid.data("words", [None, 4], lod_level=1), 4, act="tanh")
    both = layers.sequence_concat([words, layers.sequence_reverse(words)])
    padded, length = layers.sequence_pad(words, layers.assign(np.zeros(1, "float32")))
    short = layers.sequence_reshape(layers.sequence_unpad(padded, length), 2)
    last = layers.sequence_expand(layers.sequence_last_step(words), words)
    weights = layers.sequence_softmax(layers.fc(layers.concat([words, last], axis=1), 1))
    weighted = layers.elementwise_mul(words, layers.reshape(weights, [-1]), axis=0)
    parts = [
        layers.sequence_pool(layers.row_conv(both, 2), "average"),
        layers.sequence_pool(short, "max"),
        layers.sequence_pool(weighted, "sum"),
        fluid.nets.sequence_conv_pool(words, 3, 3, pool_type="sqrt"),
    ]
    return layers.mean(layers.square(layers.fc(layers.concat(parts, axis=1), 1)))


def losses(places, reduce=False):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        loss = mixed_loss()
        fluid.optimizer.SGD(0.1).minimize(loss)
    strategy = fluid.BuildStrategy()
    if reduce:
        strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    program = fluid.CompiledProgram(main).with_data_parallel(
        loss.name, build_strategy=strategy, places=[CPU] * places
    )
    rng, found = np.random.default_rng(5), []
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(CPU)
        executor.run(startup)
        for _ in range(3):
            lengths = rng.integers(1, 7, 6).tolist()
            rows = rng.standard_normal((sum(lengths), 4)).astype("float32")
            feed = {"words": fluid.create_lod_tensor(rows, [lengths], CPU)}
            (value,) = executor.run(program, feed=feed, fetch_list=[loss])
            found.append(np.mean(value))
    return found


@pytest.mark.parametrize("reduce", [False, True])
def test_sequences_of_several_devices_train_as_those_of_one(reduce):
    one, three = losses(1), losses(3, reduce)
    np.testing.assert_allclose(three, one, rtol=1e-5)
    assert len(set(one)) == 3


def test_sequences_without_rows():
    x = fluid.data("x", [None, 1], lod_level=1)
    greatest = layers.sequence_pool(x, "max", pad_value=-1.0)
    twice = layers.sequence_expand(layers.sequence_concat([x, x]), x)
    feed = {"x": sequences([2, 0, 1])}
    pooled, expanded = run(feed, greatest, twice)
    assert np.array(pooled).ravel().tolist() == [1.0, -1.0, 2.0]
    assert np.array(expanded).ravel().tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 2, 2]
    assert expanded.recursive_sequence_lengths() == [[4, 4, 2]]


def test_only_sequences_without_rows():
    x = fluid.data("x", [None, 3, 4])
    x.stop_gradient = False
    words = layers.sequence_unpad(x, fluid.data("length", [None], dtype="int64"))
    pools = ("sum", "max", "last")
    pooled = [layers.sequence_pool(words, kind, pad_value=2.0) for kind in pools]
    pooled.append(fluid.nets.sequence_conv_pool(words, 4, 3, bias_attr=False))
    pooled.append(layers.sequence_pool(layers.sequence_reverse(words), "average", pad_value=3.0))
    loss = layers.mean(layers.concat(pooled, axis=1))
    fluid.backward.append_backward(loss)
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(CPU)
        executor.run(fluid.default_startup_program())
        feed = {"x": np.ones((2, 3, 4), "float32"), "length": np.zeros(2, "int64")}
        mean, grad = executor.run(feed=feed, fetch_list=[loss, "x@GRAD"])
    np.testing.assert_allclose(mean, (3 * 2 + 0 + 3) / 5)
    np.testing.assert_array_equal(grad, np.zeros((2, 3, 4)))


def test_unpad_takes_lengths_in_a_column_as_older_programs_have_them():
    x, length = fluid.data("x", [None, 2]), fluid.data("length", [None, 1], dtype="int64")
    words = layers.sequence_unpad(x, length)
    feed = {"x": np.array([[1, 2], [3, 4]], "float32"), "length": np.array([[1], [2]])}
    (found,) = fluid.Executor(CPU).run(feed=feed, fetch_list=[words], return_numpy=False)
    assert np.array(found).tolist() == [[1.0], [3.0], [4.0]]
    assert found.recursive_sequence_lengths() == [[1, 2]]


@pytest.mark.parametrize(
    ("offset", "length", "text"),
    [
        ([[0], [2]], [[1], [2]], "2 rows from row 2 on"),
        ([[0], [3]], [[1], [1]], "1 rows from row 3 on"),
    ],
)
def test_pieces_that_a_sequence_does_not_have_are_refused(offset, length, text):
    x = fluid.data("x", [None, 1], lod_level=1)
    piece = layers.sequence_slice(
        x, *(layers.assign(np.array(numbers, "int64")) for numbers in (offset, length))
    )
    with pytest.raises(fluid.core.EnforceNotMet, match=text):
        run({"x": sequences([2, 3])}, piece)


def test_other_numbers_of_sequences_are_refused():
    x, y = (fluid.data(name, [None, 1], lod_level=1) for name in "xy")
    feed = {"x": sequences([1, 2]), "y": sequences([1, 1, 1])}
    with pytest.raises(fluid.core.EnforceNotMet, match=r"X has 2 sequences.* but Y has 3"):
        run(feed, layers.sequence_expand(x, y))
    with pytest.raises(fluid.core.EnforceNotMet, match="as many sequences"):
        run(feed, layers.sequence_concat([x, y]))


def test_numbers_that_do_not_fill_rows_are_refused():
    x = fluid.data("x", [None, 2], lod_level=1)
    with pytest.raises(fluid.core.EnforceNotMet, match="do not fit"):
        run({"x": sequences([1, 3], width=2)}, layers.sequence_reshape(x, 4))


def test_longer_sequences_than_maxlen_are_refused():
    x = fluid.data("x", [None, 1], lod_level=1)
    padded, _ = layers.sequence_pad(x, layers.assign(np.zeros(1, "float32")), maxlen=2)
    with pytest.raises(fluid.core.EnforceNotMet, match="a sequence has 3 rows"):
        run({"x": sequences([1, 3])}, padded)


def test_offsets_that_do_not_end_with_the_rows_are_refused():
    x = fluid.data("x", [None, 1])
    with pytest.raises(fluid.core.EnforceNotMet, match="end at 3"):
        run({"x": np.zeros((3, 1), "float32")}, layers.lod_reset(x, target_lod=[0, 2, 4]))


def test_wrong_calls_are_refused():
    dense = fluid.data("dense", [None, 4])
    words = fluid.data("words", [None, 4], lod_level=1)
    with pytest.raises(fluid.core.EnforceNotMet, match="lod_level is 0"):
        layers.sequence_pool(dense, "sum")
    with pytest.raises(fluid.core.EnforceNotMet, match="pooltype must be SUM"):
        layers.sequence_pool(words, "median")
    with pytest.raises(fluid.core.EnforceNotMet, match="contextStride can only be 1"):
        layers.sequence_conv(words, 3, filter_stride=2)
    with pytest.raises(ValueError, match="y or target_lod"):
        layers.lod_reset(words)
    with pytest.raises(ValueError, match="level in lod_append"):
        layers.lod_append(words, 3)
    with pytest.raises(TypeError, match="must be list"):
        layers.sequence_concat(words)


def test_images_of_different_sizes_have_no_gradient():
    image = fluid.data("image", [None, 1, 4, 4])
    image.stop_gradient = False
    steps = layers.im2sequence(image, 2, input_image_size=fluid.data("sizes", [None, 2]))
    with pytest.raises(MissingGradientError, match="sizes of their own"):
        fluid.backward.append_backward(layers.mean(steps))


def test_samples_are_chosen_by_their_tags():
    x = fluid.data("x", [None, 2], lod_level=1)
    x.stop_gradient = False
    tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    wanted = fluid.data("wanted", [None], "int64")
    out, weight = layers.filter_by_instag(x, tags, wanted, is_lod=True)
    (grad,) = fluid.gradients(layers.reduce_sum(out), x)
    feed = {"x": sequences([2, 1, 3], 2), "tags": sequences([1, 2, 1], dtype="int64")}
    found = run(feed | {"wanted": np.array([0, 3])}, out, weight, grad)
    assert found[0].lod() == [[0, 2, 5]] and found[1].lod() == [[0, 1, 2]]
    np.testing.assert_array_equal(np.array(found[0])[:, 0], [0, 2, 6, 8, 10])
    np.testing.assert_array_equal(np.array(found[2])[:, 0], [1, 1, 0, 1, 1, 1])
    none = run(feed | {"wanted": np.array([9])}, out, weight, grad)
    assert np.array(none[1]) == [[0]] and not np.array(none[2]).any()


def test_rows_that_are_cut_into_pieces_hold_no_sequences():
    x = fluid.data("x", [None, 6], lod_level=1)
    pieces, whole = layers.reshape(x, [-1, 3]), layers.reshape(x, [-1, 2, 3])
    feed = {"x": sequences([2, 1], width=6)}
    assert [found.lod() for found in run(feed, pieces, whole)] == [[], [[0, 2, 3]]]
    pooled = layers.sequence_pool(pieces, "sum")  # as in Paddle, -1 rows are taken for -1 rows
    with pytest.raises(fluid.core.EnforceNotMet, match="holds no sequences"):
        run(feed, pooled)


@pytest.mark.parametrize("axis", [0, -2])
def test_sequences_of_rows_one_after_another_lie_so_too(axis):
    x, y = (fluid.data(name, [None, 2], lod_level=1) for name in "xy")
    x.stop_gradient = False
    both = layers.concat([x, y, x], axis=axis)
    pooled = layers.sequence_pool(both, "sum")
    fluid.backward.append_backward(layers.reduce_sum(layers.square(pooled)))
    feed = {"x": sequences([2, 0], width=2), "y": sequences([1, 1], width=2)}
    rows, sums, gradient = run(feed, both, pooled, "x@GRAD")
    assert rows.lod() == [[0, 2, 2, 3, 4, 6, 6]]
    assert np.array(sums).tolist() == [[2, 4], [0, 0], [0, 1], [2, 3], [2, 4], [0, 0]]
    assert np.array(gradient).tolist() == [[8, 16], [8, 16]]
    assert gradient.lod() == [[0, 2, 2]]


def test_rows_after_which_others_come_hold_no_sequences():
    x = fluid.data("x", [None, 2], lod_level=1)
    more = layers.concat([x, layers.reduce_sum(x, dim=0, keep_dim=True)], axis=0)
    twice = layers.expand_as(x, layers.concat([x, x], axis=0))
    feed = {"x": sequences([2, 1], width=2)}
    assert [found.lod() for found in run(feed, more, twice)] == [[], []]


def test_reshaped_rows_stay_sequences_if_one_is_as_large_as_before():
    """Then there are as many, though the program does not say how many there were."""
    x = fluid.data("x", [None, 2], lod_level=1)
    (found,) = run({"x": sequences([2, 1], width=2)}, layers.reshape(x, [3, 2]))
    assert found.lod() == [[0, 2, 3]]


def test_dimensions_that_variables_give_one_by_one():
    """Paddle does not know their numbers when it decides what is a sequence still."""
    x, one = fluid.data("x", [None, 2], lod_level=1), layers.fill_constant([1], "int32", 1)
    reshaped = layers.reshape(x, [layers.shape(x)[0], 2])
    wider, longer = layers.expand(x, [1, one]), layers.expand(x, [one, 1])
    found = run({"x": sequences([2, 1], width=2)}, reshaped, wider, longer)
    assert [each.lod() for each in found] == [[], [[0, 2, 3]], []]


@pytest.mark.parametrize(("axis", "lengths"), [(0, [1, 2, 1, 2]), (1, [1, 2]), (-1, [1, 2])])
def test_concatenation_along_an_axis_that_is_a_variable_keeps_sequences(axis, lengths):
    x = fluid.data("x", [None, 2], lod_level=1)
    out = fluid.layers.concat([x, x], axis=fluid.layers.fill_constant([1], "int32", axis))
    data = fluid.create_lod_tensor(np.ones((3, 2), "float32"), [[1, 2]], fluid.CPUPlace())
    exe = fluid.Executor(fluid.CPUPlace())
    (found,) = exe.run(feed={"x": data}, fetch_list=[out], return_numpy=False)
    assert found.recursive_sequence_lengths() == [lengths]
