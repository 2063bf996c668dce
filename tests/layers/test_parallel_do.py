"""The class ``ParallelDo``: the operators that it adds, and refused calls."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.core import VarType

layers = fluid.layers


@pytest.fixture
def main():
    program = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(program, fluid.Program()):
        yield program


def test_operators_in_the_program(main):
    x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1])
    pd = layers.ParallelDo(layers.get_places(3, "cpu"), keep_parameters=True)
    with pd.do():
        assert pd.pre_fetch(x) is x
        hidden = layers.fc(x, 2)
        pd.write_output(hidden)
        pd.write_output(layers.mean(layers.elementwise_add(hidden, pd.read_input(label))))
    out, mean = pd()
    layers.relu(out)
    places, op, _ = main.global_block().ops
    assert places.type == "get_places"
    assert (places.attr("device_count"), places.attr("device_type")) == (3, "CPU")
    assert main.global_block().var(places.output("Out")[0]).type == VarType.PLACE_LIST
    assert op.type == "parallel_do" and op.attr("sub_block") is main.block(1)
    assert op.inputs == {
        "inputs": ["x", "label"],
        "parameters": ["fc_0.w_0", "fc_0.b_0"],
        "places": places.output("Out"),
    }
    assert op.outputs["outputs"] == [hidden.name, mean.name]
    (scopes,) = op.outputs["parallel_scopes"]
    assert main.global_block().var(scopes).type == VarType.STEP_SCOPES
    assert (op.attr("use_nccl"), op.attr("keep_parameters")) == (False, True)
    assert op.attr("pre_fetch") == ["x"]
    assert (out.shape, mean.shape) == ((-1, 2), (-1,))
    assert out.block is main.global_block() and hidden.block is main.block(1)


def test_gradient_operator(main):
    x = fluid.data("x", [None, 4])
    feature = layers.fc(x, 3)
    pd = layers.ParallelDo(layers.get_places(2))
    with pd.do():
        hidden = layers.fc(pd.read_input(feature), 2)
        pd.write_output(hidden)
        pd.write_output(layers.argmax(hidden, 1))
        pd.write_output(layers.fc(hidden, 5))  # which the loss does not depend on
    out, *_ = pd()
    fluid.backward.append_backward(layers.mean(out))
    (op,) = (op for op in main.global_block().ops if op.type == "parallel_do_grad")
    block = op.attr("sub_block")
    assert (block.parent_idx, block.forward_block_idx) == (0, 1)
    assert [each.type for each in block.ops] == ["elementwise_add_grad", "mul_grad"]
    assert op.inputs["outputs@GRAD"] == [f"{out.name}@GRAD", "@EMPTY@", "@EMPTY@"]
    assert op.outputs == {
        "inputs@GRAD": [f"{feature.name}@GRAD"],
        "parameters@GRAD": ["fc_1.w_0@GRAD", "fc_1.b_0@GRAD", "@EMPTY@", "@EMPTY@"],
    }
    assert main.global_block().var("fc_1.w_0@GRAD").shape == (3, 2)


def test_order_of_calls(main):
    x = fluid.data("x", [None, 4])
    pd = layers.ParallelDo(layers.get_places())
    for method, argument in (("read_input", x), ("pre_fetch", x), ("write_output", x)):
        with pytest.raises(ValueError, match=f"{method} must be called inside"):
            getattr(pd, method)(argument)
    with pytest.raises(ValueError, match="can only be retrieved after"):
        pd()
    with pd.do():
        scaled = layers.scale(pd.read_input(x), 2.0)
        with pytest.raises(ValueError, match="can only be retrieved after"):
            pd()
        with pytest.raises(ValueError, match="is computed, not fed"):
            pd.pre_fetch(scaled)
        with pytest.raises(ValueError, match="x is not computed in the block"):
            pd.write_output(x)
        with pytest.raises(TypeError, match="read_input takes a Variable, but received str"):
            pd.read_input("x")
        inner = layers.ParallelDo(layers.get_places()).do()
        with pytest.raises(NotImplementedError, match="inside of another block"), inner:
            pass
    with pytest.raises(ValueError, match="has no output"):
        pd()
    with pytest.raises(ValueError, match="can be called once"), pd.do():
        pass


def test_blocks_that_are_refused(main):
    x = fluid.data("x", [None, 4])
    around = layers.fill_constant([1], "float32", 0.0)
    pd = layers.ParallelDo(layers.get_places())
    with pytest.raises(NotImplementedError, match=f"its block writes {around.name}"), pd.do():
        layers.assign(layers.mean(pd.read_input(x)), around)
    pd = layers.ParallelDo(layers.get_places())
    with pytest.raises(ValueError, match="reads no input"), pd.do():
        layers.scale(around, 2.0)


def test_arguments_of_places(main):
    with pytest.raises(ValueError, match="device_count must not be negative"):
        layers.get_places(-1)
    with pytest.raises(ValueError, match="device_type must be one of AUTO, CPU, CUDA"):
        layers.get_places(1, "TPU")
    for wrong in (2, [], [0, 1], fluid.CPUPlace()):
        with pytest.raises(TypeError, match="takes what get_places returns, or a list of places"):
            layers.ParallelDo(wrong)
    with pytest.raises(TypeError, match="not variable x"):
        layers.ParallelDo(fluid.data("x", [None, 4]))


def test_block_that_fails_leaves_the_program_usable(main):
    x = fluid.data("x", [None, 4])
    pd = layers.ParallelDo(layers.get_places())
    with pytest.raises(RuntimeError, match="in the block"), pd.do():
        raise RuntimeError("in the block")
    out = layers.scale(x, 2.0)
    assert out.block is main.global_block()
    rows = np.ones((2, 4), "float32")
    (found,) = fluid.Executor(fluid.CPUPlace()).run(main, {"x": rows}, [out])
    np.testing.assert_array_equal(found, 2 * rows)
