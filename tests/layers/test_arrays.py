"""Tensor arrays: layers, operators and gradients."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.lod import Lod

layers = fluid.layers


def number(value):
    return layers.fill_constant([1], "int64", value)


def run(fetch, **feed):
    feed = {name: np.asarray(value, "float32") for name, value in feed.items()}
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetch)


def test_entries_of_an_older_array_stay():
    lod = Lod([[0, 1]])
    first = TensorArray().written(1, np.zeros(1), lod)
    second = first.written(1, np.ones(1)).written(3, np.ones(2))
    assert (len(first), len(second)) == (2, 4)
    assert first.entry(0) is None and first.entry(1) == (np.zeros(1), lod)
    assert second.entry(1) == (np.ones(1), Lod()) and second.entry(4) is None
    assert second.nbytes == 24
    assert repr(first) == "TensorArray(None, float64[1])"


def test_gradients_of_entries_are_added_up():
    x = fluid.data("x", [None, 2])
    x.stop_gradient = False
    array = layers.array_write(x * 2.0, number(0))
    layers.array_write(x * 3.0, number(1), array)
    layers.array_write(x * 5.0, number(2), array)  # which nobody reads
    total = layers.array_read(array, number(1)) * 10.0
    total += layers.array_read(array, number(0)) + layers.array_read(array, number(1))
    grad = fluid.gradients(layers.reduce_sum(total), x)
    found, length, grad = run([total, layers.array_length(array), *grad], x=np.ones((2, 2)))
    assert found.tolist() == [[35, 35]] * 2 and grad.tolist() == [[35, 35]] * 2
    assert length.tolist() == [3] and length.dtype == np.int64


def test_sequences_of_an_entry_are_pooled():
    x = fluid.data("x", [None, 2], lod_level=1)
    x.stop_gradient = False
    entry = layers.array_read(layers.array_write(x * 2.0, number(0)), number(0))
    pooled = layers.tanh(layers.sequence_pool(entry, "sum"))  # how many, the run alone tells
    grad = fluid.gradients(layers.reduce_sum(pooled), x)
    rows = np.full((5, 2), 0.1)
    feed = {"x": fluid.create_lod_tensor(rows.astype("float32"), [[3, 2]], fluid.CPUPlace())}
    exe = fluid.Executor(fluid.CPUPlace())
    values = exe.run(feed=feed, fetch_list=[pooled, *grad], return_numpy=False)
    found, grad = map(np.asarray, values)
    expected = np.tanh([0.6, 0.4])[:, None]
    np.testing.assert_allclose(found, expected.repeat(2, axis=1), rtol=1e-5)
    slopes = (2 - 2 * expected**2).repeat([3, 2], axis=0).repeat(2, axis=1)
    np.testing.assert_allclose(grad, slopes, rtol=1e-5)


def test_an_entry_that_is_not_there_is_an_error():
    array = layers.array_write(number(7), number(1))
    found = layers.array_read(array, number(2))  # this line
    with pytest.raises(fluid.core.EnforceNotMet, match="none of number 2") as error:
        run([found])
    assert "# this line" in str(error.value) and "read_from_array" in str(error.value)


def test_array_that_nothing_is_written_to_has_no_entries():
    assert run([layers.array_length(layers.create_array("float32"))])[0].tolist() == [0]


def test_arguments_are_checked():
    x = layers.ones([1], "float32")
    with pytest.raises(TypeError, match="tensor array"):
        layers.array_read(x, number(0))
    with pytest.raises(TypeError, match="int64"):
        layers.array_write(x, x)
    with pytest.raises(fluid.core.EnforceNotMet, match="one element"):
        layers.array_write(x, layers.fill_constant([2], "int64", 0))


def fetched(devices, merged, return_numpy=True):
    dense, x = fluid.data("dense", [None, 1]), fluid.data("x", [None, 2], lod_level=1)
    array = layers.array_write(dense * 2.0, number(1))
    if not return_numpy:
        layers.array_write(x, number(2), array)
    data = np.arange(6, dtype="float32").reshape(3, 2)
    sequences = fluid.create_lod_tensor(data, [[2, 1]], fluid.CPUPlace())
    feed = {"dense": data[1:, :1], "x": sequences}
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(devices)
    )
    run = fluid.Executor(fluid.CPUPlace()).run
    options = {"return_numpy": return_numpy, "return_merged": merged}
    return run(program, feed=feed, fetch_list=[array], **options)[0]


@pytest.mark.parametrize("devices", [1, 2])
def test_fetched_array_is_a_list_of_its_entries(devices):
    empty, twice = fetched(devices, merged=True)
    assert empty is None
    assert twice.tolist() == [[4], [8]]


def test_fetched_array_of_every_device():
    (_, first), (_, second) = fetched(2, merged=False)
    assert (first.tolist(), second.tolist()) == ([[4]], [[8]])


def test_fetched_array_with_sequences():
    array = fetched(2, merged=True, return_numpy=False)
    assert type(array) is fluid.LoDTensorArray
    assert [tensor.recursive_sequence_lengths() for tensor in array] == [[], [], [[2, 1]]]
    assert [tensor.shape() for tensor in array] == [[0], [2, 1], [3, 2]]
    assert np.array(array[2]).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_entries_are_joined_and_stacked_with_gradients():
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    array = layers.array_write(x, number(0))
    layers.array_write(x * 2.0, number(1), array)
    joined, stacked = layers.concat(array, axis=1), layers.stack(array, axis=1)
    grad = fluid.gradients(joined, x)[0]
    value = np.arange(6, dtype="float32").reshape(2, 3)
    found = run([joined, stacked, grad], x=value)
    np.testing.assert_array_equal(found[0], np.concatenate([value, 2 * value], 1))
    np.testing.assert_array_equal(found[1], np.stack([value, 2 * value], 1))
    np.testing.assert_array_equal(found[2], np.full((2, 3), 3))
    for join in (layers.concat, layers.stack):
        with pytest.raises(ValueError, match=f"{join.__name__} takes .*, but array_write_0.out is"):
            join([array, x])


@pytest.mark.parametrize(("axis", "stack"), [(-1, False), (-1, True), (-4, True), (3, True)])
def test_arrays_are_joined_along_axes_counted_from_the_end(axis, stack):
    """Paddle leaves the sizes unset."""
    x = fluid.data("x", [2, 3, 4])
    array = layers.array_write(x, number(0))
    layers.array_write(x * 2.0, number(1), array)
    joined, sizes = run(
        layers.tensor_array_to_tensor(array, axis, use_stack=stack), x=np.ones((2, 3, 4))
    )
    parts = [np.full((2, 3, 4), value, "float32") for value in (1, 2)]
    expected = np.stack(parts, axis) if stack else np.concatenate(parts, axis)
    np.testing.assert_array_equal(joined, expected)
    size = (2, 3, 4, 1)[axis] if stack else 4  # of an entry at that place, as in Paddle
    np.testing.assert_array_equal(sizes, [size, size])


def test_loop_reads_entries_with_and_without_sequences():
    """The latest entry that was written does not tell what earlier ones hold."""
    plain = fluid.data("plain", [None, 2])
    words = fluid.data("words", [None, 2], lod_level=1)
    array, made = fluid.layers.create_array("float32"), fluid.layers.create_array("float32")
    index = [fluid.layers.fill_constant([1], "int64", i) for i in range(3)]
    for i, entry in zip(index, (plain, words, plain), strict=True):
        fluid.layers.array_write(entry, i, array)
    at, end = fluid.layers.zeros([1], "int64"), fluid.layers.fill_constant([1], "int64", 3)
    going = fluid.layers.less_than(at, end)
    with fluid.layers.While(going).block():
        repeated = fluid.layers.sequence_expand(fluid.layers.array_read(array, at), words)
        fluid.layers.array_write(repeated, at, made)
        fluid.layers.increment(at, 1)
        fluid.layers.less_than(at, end, cond=going)
    rows = np.arange(8, dtype="float32").reshape(4, 2)
    feed = {"plain": rows[:2], "words": fluid.create_lod_tensor(rows, [[1, 3]], fluid.CPUPlace())}
    fetch = [fluid.layers.array_read(made, i) for i in index]
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetch, return_numpy=False)
    for i in (0, 2):
        np.testing.assert_array_equal(found[i], rows[[0, 1, 1, 1]])
        assert found[i].lod() == []
    np.testing.assert_array_equal(found[1], rows[[0, *[1, 2, 3] * 3]])
    assert found[1].lod() == [[0, 1, 4, 7, 10]]
