"""Shapes that variables complete: what a program knows of them, as in Paddle 1.8.5.

Layers that follow size their parameters by it.
"""

import numpy as np
import pytest

import dpexec as fluid

KNOWN = {
    "reshape": (
        lambda L, x, dims, two: L.reshape(x, [dims[0], 2, 4, dims[2], -1]),
        (-1, 2, 4, -1, -1),
    ),
    "reshape, copied": (lambda L, x, dims, two: L.reshape(x, [0, 0, dims[2], -1]), (-1, 8, -1, -1)),
    "actual_shape": (
        lambda L, x, dims, two: L.reshape(x, [0, 0, 24], actual_shape=dims),
        (-1, 8, 24),
    ),
    "slice": (lambda L, x, dims, two: L.slice(x, [1, 2], [0, two], [4, 5]), (-1, 4, -1, -1)),
    "strided_slice": (
        lambda L, x, dims, two: L.strided_slice(x, [1, 2], [0, two], [30, -1], [2, 1]),
        (-1, 4, -1, -1),
    ),
    "index": (lambda L, x, dims, two: x[two, 1:3], (2, -1, -1)),
    "split": (lambda L, x, dims, two: L.split(x, [two, 3], dim=1)[1], (-1, 3, -1, -1)),
    "split, unknown": (lambda L, x, dims, two: L.split(x, [-1, -1], dim=2)[1], (-1, 8, -1, -1)),
}


@pytest.mark.parametrize("case", KNOWN)
def test_program_keeps_what_it_knows(case):
    layer, shape = KNOWN[case]
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 8, None, None])
        two = fluid.layers.fill_constant([1], "int32", 2)
        assert layer(fluid.layers, x, fluid.layers.shape(x), two).shape == shape


def test_channels_are_shuffled_and_split_in_images_of_any_size():
    layers, main = fluid.layers, fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4, None, None])
        dims = layers.shape(x)
        groups = layers.reshape(x, [dims[0], 2, 2, dims[2], dims[3]])
        shuffled = layers.reshape(
            layers.transpose(groups, [0, 2, 1, 3, 4]), [dims[0], 4, dims[2], dims[3]]
        )
        halves = layers.split(shuffled, [shuffled.shape[1] // 2] * 2, dim=1)
    images = np.arange(48, dtype="float32").reshape(2, 4, 2, 3)
    exe = fluid.Executor(fluid.CPUPlace())
    first, second = exe.run(main, feed={"x": images}, fetch_list=halves)
    np.testing.assert_array_equal(first, images[:, [0, 2]])
    np.testing.assert_array_equal(second, images[:, [1, 3]])


def test_actual_shape_wins_when_the_program_runs():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 6])
        actual = fluid.data("actual", [3], "int32")
        made = fluid.layers.reshape(x, [-1, 6, 1], actual_shape=actual)
    feed = {"x": np.zeros((2, 6), np.float32), "actual": np.array([2, 3, 2], np.int32)}
    (value,) = fluid.Executor(fluid.CPUPlace()).run(main, feed=feed, fetch_list=[made])
    assert value.shape == (2, 3, 2)


def test_sections_of_a_known_dimension_leave_one_open_at_most():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 8])
        with pytest.raises(fluid.core.EnforceNotMet, match="only one may be -1"):
            fluid.layers.split(x, [-1, -1], dim=1)


def test_shape_of_unknown_length_has_as_many_numbers_as_the_attribute():
    x, shape = fluid.data("x", [None, 4]), fluid.data("shape", [None], "int32")
    out = fluid.layers.reshape(x, [2, 6], actual_shape=shape)
    feed = {"x": np.arange(12, dtype="float32").reshape(3, 4), "shape": np.array([4, 3], "int32")}
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out])
    np.testing.assert_array_equal(found, feed["x"].reshape(4, 3))
