"""Variables that are written several times in a run, with different shapes."""

import numpy as np
import pytest

import dpexec as fluid

layers = fluid.layers


def sums_of_two_values(x, turned):
    """Sums along the rows of a variable that first holds ``x``, then what is made of it."""
    held = layers.create_tensor("float32")
    layers.assign(x, held)
    first = layers.reduce_sum(held, dim=1)
    layers.assign(turned, held)
    return first, layers.reduce_sum(held, dim=1)


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("same_size", [True, False])
def test_each_operator_reads_the_value_before_it(places, same_size):
    x = fluid.data("x", [None, 2], "float32")
    turned = layers.reshape(x, [-1, 4]) if same_size else layers.concat([x, x], axis=1)
    fetches = sums_of_two_values(layers.scale(x, 1.0), turned)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(places)
    )
    exe = fluid.Executor(fluid.CPUPlace())
    for rows in (4, 8, 12, 8):  # code of one size, then of any
        value = np.arange(2 * rows, dtype="float32").reshape(rows, 2)
        first, second = exe.run(program, feed={"x": value}, fetch_list=fetches)
        np.testing.assert_array_equal(first, value.sum(axis=1))
        other = value.reshape(-1, 4) if same_size else np.tile(value, 2)
        np.testing.assert_array_equal(second, other.sum(axis=1))


def test_in_a_loop():
    x = fluid.data("x", [4, 2], "float32")
    count = layers.fill_constant([1], "int64", 0)
    total = layers.fill_constant([4], "float32", 0.0)
    more = layers.less_than(count, layers.fill_constant([1], "int64", 3))
    loop = layers.While(more)
    with loop.block():
        first, second = sums_of_two_values(layers.scale(x, 2.0), layers.reshape(x, [2, 4]))
        layers.assign(total + first + layers.reduce_sum(second), total)
        layers.increment(count, in_place=True)
        layers.less_than(count, layers.fill_constant([1], "int64", 3), cond=more)
    exe = fluid.Executor(fluid.CPUPlace())
    value = np.arange(8, dtype="float32").reshape(4, 2)
    for _ in range(2):
        (found,) = exe.run(feed={"x": value}, fetch_list=[total])
        np.testing.assert_array_equal(found, 3 * (2 * value.sum(axis=1) + value.sum()))
