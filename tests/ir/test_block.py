"""Blocks that are edited by hand."""

import numpy as np
import pytest

import dpexec as fluid


def test_operators_are_inserted_and_variables_renamed_and_removed():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        out = fluid.layers.scale(x, 2.0)
        block = fluid.default_main_program().global_block()
        block.create_var(name="unused", shape=[1], dtype="float32")
        block._remove_var("unused")
        more = block.create_var(name="more", dtype="float32")
        block._insert_op(1, "scale", {"X": [out]}, {"Out": [more]}, {"scale": 3.0})
        assert block._rename_var(out.name, "twice") is out
        assert [op.input("X") for op in block.ops] == [["x"], ["twice"]]
        assert sorted(block.vars) == ["more", "twice", "x"]
        exe = fluid.Executor(fluid.CPUPlace())
        feed = {"x": np.ones((1, 2), "float32")}
        twice, six = exe.run(feed=feed, fetch_list=["twice", "more"])
    assert (twice.tolist(), six.tolist()) == ([[2.0, 2.0]], [[6.0, 6.0]])


def test_layer_of_another_programs_variable_says_so():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4])
    with (
        fluid.program_guard(fluid.Program()),
        pytest.raises(
            fluid.core.EnforceNotMet,
            match=r"mean: variable x is not in this program(.|\n)*test_block",
        ),
    ):
        fluid.layers.mean(x)
