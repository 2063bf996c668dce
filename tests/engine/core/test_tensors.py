"""Tensors: text, slices, conversion to arrays, sharing of memory."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core import tensors


def tensor(array, lod=()):
    made = fluid.LoDTensor()
    made.set(np.asarray(array), fluid.CPUPlace())
    if lod:
        made.set_lod(lod)
    return made


@pytest.mark.parametrize(
    ("array", "lod", "text"),  # from the real Paddle
    [
        (
            np.arange(6, dtype="float32").reshape(2, 3) / 7,
            [],
            "\tlod: {}\n\tdim: 2, 3\n\tlayout: NCHW\n\tdtype: float\n"
            "\tdata: [0 0.142857 0.285714 0.428571 0.571429 0.714286]\n",
        ),
        (
            np.arange(6, dtype="int64").reshape(6, 1),
            [[0, 2, 6], [0, 1, 2, 3, 4, 5, 6]],
            "\tlod: {{0, 2, 6}{0, 1, 2, 3, 4, 5, 6}}\n\tdim: 6, 1\n\tlayout: NCHW\n"
            "\tdtype: int64_t\n\tdata: [0 1 2 3 4 5]\n",
        ),
        (np.array([True]), [], "\tlod: {}\n\tdim: 1\n\tlayout: NCHW\n\tdtype: bool\n\tdata: [1]\n"),
    ],
)
def test_text(array, lod, text):
    assert str(tensor(array, lod)) == text


def test_rows():
    whole = tensor(np.arange(12.0).reshape(4, 3))
    assert np.array(whole[1]).tolist() == [[3.0, 4.0, 5.0]]
    assert np.array(whole[-1]).tolist() == [[9.0, 10.0, 11.0]]
    assert whole[1:3].shape() == [2, 3]
    with pytest.raises(IndexError, match="index 4"):
        whole[4]


def test_parts_keep_their_dimensions():
    array = np.arange(60.0).reshape(5, 4, 3)
    whole = tensor(array)
    assert np.array_equal(whole[1:3, 0:2], array[1:3, 0:2])
    assert np.array_equal(whole[0:4:2, 1:4:2, 1:], array[0:4:2, 1:4:2, 1:])
    assert np.array_equal(whole[:, -2], array[:, 2:3])
    assert np.array_equal(whole[-1, 2, 1], array[4:, 2:3, 1:2])
    whole[0:1].set(np.zeros((1, 4, 3)), fluid.CPUPlace())  # a copy
    assert np.array_equal(whole, array)
    for wrong, match in (((0, 9), "index 9"), ((0, 0, 0, 0), "4 indices"), (1.5, "index 1.5")):
        with pytest.raises(IndexError, match=match):
            whole[wrong]


def test_as_numpy():
    plain = tensor(np.ones((2, 2)))
    assert [value.shape for value in fluid.executor.as_numpy([plain, plain])] == [(2, 2)] * 2
    assert fluid.executor.as_numpy(None) is None
    with pytest.raises(RuntimeError, match="hold LoD information"):
        fluid.executor.as_numpy(tensor(np.ones((2, 2)), [[0, 1, 2]]))


def test_tensor_without_data_is_an_empty_array():
    held = np.array(fluid.Scope().var("x").get_tensor())
    assert held.shape == (0,) and held.dtype == np.float64
    assert tensor(held).shape() == [0]


def test_tensor_goes_through_a_capsule_with_its_memory():
    tensor = fluid.core.LoDTensor()
    tensor.set(np.arange(6, dtype="float32").reshape(2, 3), fluid.CPUPlace())
    twin = fluid.core.from_dlpack(tensor._to_dlpack())
    np.testing.assert_array_equal(np.array(twin), np.arange(6).reshape(2, 3))
    assert np.shares_memory(twin.array, tensor.array)


def test_tensors_share_what_they_hold():
    held, other = tensor([[1.0, 2.0]]), fluid.LoDTensor()
    other._share_data_with(held)
    assert other.array is held.array


def test_only_what_is_written_to_variables_concerns_runtimes():
    before = tensors.moves, tensors.last_write
    fed = fluid.LoDTensor()
    fed.set(np.ones((3, 2), "float32"))
    fed.set_lod([[0, 1, 3]])
    fed.set(np.zeros((3, 2), "float32"))
    assert (tensors.moves, tensors.last_write) == before
    variable = fluid.Scope().var("x").get_tensor()
    variable._share_data_with(fed)
    assert tensors.moves > before[0]
    assert tensors.last_write == variable.version > before[1]


def test_memory_and_single_elements():
    made = tensor(np.arange(6, dtype="float64").reshape(2, 3))
    assert made._get_dims() == [2, 3]
    made._set_double_element(4, 0.5)
    assert (made._get_double_element(4), np.array(made)[1, 1]) == (0.5, 0.5)
    with pytest.raises(fluid.core.EnforceNotMet, match="float32"):
        made._get_float_element(4)
    made._clear()
    assert (made._is_initialized(), made._get_dims()) == (False, [2, 3])  # as in Paddle
    made._set_dims([3, 1])
    made._alloc_float(fluid.CPUPlace())
    assert np.array(made).shape == (3, 1)
