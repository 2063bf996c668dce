"""Operators on nested sequences, and the concatenation of sequences: where Paddle is wrong."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec import layers

CPU = fluid.CPUPlace()
NESTED = [[2, 1], [3, 2, 4]]


def tag_costs(x, label):
    emissions = layers.scale(x, 0.5)
    return layers.linear_chain_crf(emissions, label, fluid.ParamAttr("transitions"))


def distances(x, label):
    return layers.edit_distance(layers.cast(x, "int64"), label, normalized=False)[0]


NETS = {
    "row_conv": lambda x, label: layers.row_conv(x, 2),
    "linear_chain_crf": tag_costs,
    "sequence_conv": lambda x, label: layers.sequence_conv(x, 3, 3),
    "sequence_reverse": lambda x, label: layers.sequence_reverse(x),
    "sequence_pad": lambda x, label: layers.sequence_pad(x, layers.assign(np.zeros(1, "f4")))[0],
    "edit_distance": distances,
}


def result(net, lengths, width):
    """The rows that a net gives, and their gradient if there is one."""
    main, startup = fluid.Program(), fluid.Program()
    rows = np.arange(9 * width, dtype="float32").reshape(9, width) % 4
    labels = np.arange(9).reshape(9, 1) % 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, width], lod_level=len(lengths))
        label = fluid.data("label", [None, 1], "int64", lod_level=len(lengths))
        x.stop_gradient = False
        out = net(x, label)
        slopes = fluid.gradients(layers.reduce_sum(layers.square(out)), x)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(CPU)
        if main.all_parameters():
            exe.run(startup)
        for param in main.all_parameters():
            numbers = np.arange(np.prod(param.shape), dtype="float32").reshape(param.shape)
            fluid.global_scope().find_var(param.name).get_tensor().set(numbers / 8, CPU)
        feed = {
            "x": fluid.create_lod_tensor(rows, lengths, CPU),
            "label": fluid.create_lod_tensor(labels, lengths, CPU),
        }
        found = exe.run(main, feed=feed, fetch_list=[out, *slopes], return_numpy=False)
        return [np.array(value) for value in found]


@pytest.mark.parametrize("name", NETS)
def test_innermost_sequences_count(name):
    width = 1 if name == "edit_distance" else 3
    nested = result(NETS[name], NESTED, width)
    for got, expected in zip(nested, result(NETS[name], NESTED[1:], width), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_concatenation_has_the_gradient_of_an_input_beside_one_without():
    x, y = (fluid.data(name, [None, 1], lod_level=1) for name in "xy")
    x.stop_gradient = False
    loss = layers.reduce_sum(layers.square(layers.sequence_concat([y, x])))
    rows = np.arange(1, 6, dtype="float32").reshape(5, 1)
    feed = {
        "x": fluid.create_lod_tensor(rows, [[3, 2]], CPU),
        "y": fluid.create_lod_tensor(-rows, [[1, 4]], CPU),
    }
    slopes = fluid.gradients(loss, x)
    (found,) = fluid.Executor(CPU).run(feed=feed, fetch_list=slopes, return_numpy=False)
    np.testing.assert_array_equal(found, 2 * rows)  # Paddle: -2, 1, 2, 2, 4
