"""``conditional_block_infer`` and ``merge_lod_tensor_infer``."""

import numpy as np
import pytest

import dpexec as fluid

layers = fluid.layers


def for_prediction():
    """The main program with the operators that Paddle's inference engine takes instead."""
    program = fluid.default_main_program().clone(for_test=True)
    for block in program.blocks:
        for op in block.ops:
            if op.type in ("conditional_block", "merge_lod_tensor"):
                op.desc.set_type(op.type + "_infer")
    return program


def types(program):
    return [op.type for block in program.blocks for op in block.ops]


@pytest.mark.parametrize("holds", [True, False])
def test_a_conditional_block_keeps_nothing_for_gradients(holds):
    x, flag = fluid.data("x", [2, 3]), fluid.data("flag", [1], "bool")
    out = layers.cond(flag, lambda: layers.scale(x, 2.0), lambda: layers.scale(x, -1.0, bias=1.0))
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3), "flag": np.array([holds])}
    executor = fluid.Executor(fluid.CPUPlace())
    program = for_prediction()
    assert types(program).count("conditional_block_infer") == 2
    assert "conditional_block" not in types(program)
    (expected,) = executor.run(feed=feed, fetch_list=[out])
    (found,) = executor.run(program, feed=feed, fetch_list=[out.name])
    assert found.tolist() == expected.tolist()


def test_rows_are_merged():
    x, mask = fluid.data("x", [None, 1], lod_level=1), fluid.data("mask", [None, 1], "bool")
    true, false = layers.control_flow.split_lod_tensor(x, mask)
    merged = layers.control_flow.merge_lod_tensor(true * 10.0, false, x, mask)
    column = np.arange(6, dtype="float32").reshape(6, 1)
    feed = {
        "x": fluid.create_lod_tensor(column, [[2, 1, 0, 3]], fluid.CPUPlace()),
        "mask": np.array([[True], [False], [False], [True]]),
    }
    executor = fluid.Executor(fluid.CPUPlace())
    (found,) = executor.run(
        for_prediction(), feed=feed, fetch_list=[merged.name], return_numpy=False
    )
    assert np.array(found).ravel().tolist() == [0, 10, 2, 30, 40, 50]
    assert found.recursive_sequence_lengths() == [[2, 1, 0, 3]]
