"""Arrays of tensors: layers, operators and their gradients."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.core.arrays import TensorArray
from dpexec.core.lod import Lod

layers = fluid.layers


@pytest.fixture(autouse=True)
def fresh_programs():
    """Every test builds into programs of its own."""
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        yield


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
    assert first.get(0) is None and first.get(1) == (np.zeros(1), lod)
    assert second.get(1) == (np.ones(1), Lod()) and second.get(4) is None
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
