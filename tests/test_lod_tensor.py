"""Tensors of sequences as users make them; expected values are those of the real Paddle."""

import numpy as np
import pytest

import dpexec as fluid

CPU = fluid.CPUPlace()


def test_of_an_array():
    made = fluid.create_lod_tensor(np.arange(12).reshape(6, 2), [[2, 1, 3]], CPU)
    assert (made.lod(), made.shape()) == ([[0, 2, 3, 6]], [6, 2])
    assert made.recursive_sequence_lengths() == [[2, 1, 3]]


def test_lengths_are_a_list_for_each_level():
    with pytest.raises(TypeError, match=r"a list for each level, as in \[\[2, 1\]\]"):
        fluid.create_lod_tensor(np.ones((3, 1)), [2, 1], CPU)


def test_of_lists_of_numbers():
    made = fluid.create_lod_tensor([[1, 2, 3], [4, 5]], [[3, 2]], CPU)
    assert (made.lod(), made.shape()) == ([[0, 3, 5]], [5, 1])
    assert np.array(made).dtype == np.int64


@pytest.mark.parametrize(
    ("data", "shape", "dtype"),
    [
        ([[1.5, 2], [3]], [3, 1], "float64"),
        ([[[1], [2]], [[3]]], [3, 1, 1], "int64"),
        ([[[1, 2], [3, 4]], [[5, 6]]], [3, 2, 1], "int64"),
    ],
)
def test_of_lists_of_other_things(data, shape, dtype):
    made = fluid.create_lod_tensor(data, [[2, 1]], CPU)
    assert (made.shape(), np.array(made).dtype) == (shape, np.dtype(dtype))
    assert np.array(made).ravel().tolist() == np.ravel(data[0] + data[1]).tolist()


def test_a_tensor_without_sequences_is_valid():
    made = fluid.create_lod_tensor([[1, 2]], [[2]], CPU)
    made.set_recursive_sequence_lengths([])
    assert made.has_valid_recursive_sequence_lengths()


def test_of_another_tensor():
    made = fluid.create_lod_tensor([[1, 2, 3], [4, 5]], [[3, 2]], CPU)
    assert fluid.create_lod_tensor(made, [[2, 3]], CPU).lod() == [[0, 2, 5]]


@pytest.mark.parametrize(
    ("data", "lengths", "error", "message"),
    [
        ([[1, 2], [3]], [[3, 2]], AssertionError, "do not match"),
        (np.zeros((3, 1)), [[2, 2]], fluid.core.EnforceNotMet, "end at 3"),
        ({}, [[1]], TypeError, "either a LoDTensor, a Numpy array or a list"),
    ],
)
def test_what_does_not_fit(data, lengths, error, message):
    with pytest.raises(error, match=message):
        fluid.create_lod_tensor(data, lengths, CPU)


def test_a_tensor_refuses_offsets_that_do_not_fit():
    made = fluid.create_lod_tensor([[1, 2, 3], [4, 5]], [[3, 2]], CPU)
    with pytest.raises(fluid.core.EnforceNotMet, match="begin at 0, never decrease, and end at 5"):
        made.set_lod([[0, 2, 4]])
    assert made.lod() == [[0, 3, 5]]


def test_random_numbers():
    made = fluid.create_random_int_lodtensor([[2, 3]], [4], CPU, 1, 5)
    array = np.array(made)
    assert (made.lod(), array.shape, array.dtype) == ([[0, 2, 5]], (5, 4), np.int64)
    assert array.min() >= 1
    assert array.max() <= 5
