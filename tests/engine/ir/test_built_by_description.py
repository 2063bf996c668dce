"""Programs built through ``core.ProgramDesc``."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.core import ProgramDesc, VarDesc
from dpexec.engine.core.errors import MissingKernelError


def described(names, shape):
    block = ProgramDesc().block(0)
    for name in names:
        var = block.var(name)
        var.set_type(VarDesc.VarType.LOD_TENSOR)
        var.set_shape(shape)
    return block


def test_operator_is_set_piece_by_piece():
    block = described([b"a", b"b", b"out"], [10, 20])
    block.find_var(b"out").set_shape([])
    op = block.append_op()
    op.set_type("sum")
    op.set_input("X", ["a", "b"])
    op.set_output("Out", ["out"])
    op.check_attrs()
    op.infer_shape(block)
    assert block.var(b"out").shape() == [10, 20]
    assert (op.input_arg_names(), op.output("Out")) == (["a", "b"], ["out"])
    op._rename_input("a", "b")
    assert op.input("X") == ["b", "b"]


def test_operators_are_put_in_between_and_taken_away():
    block = ProgramDesc().block(0)
    last, first = block.append_op(), block._prepend_op()
    for op, type in ((first, "relu"), (last, "mean"), (block._insert_op(1), "scale")):
        op.set_type(type)
    assert [block.op(i).type() for i in range(block.op_size())] == ["relu", "scale", "mean"]
    assert block.op(0) == first
    block._remove_op(0, 2)
    assert [block.op(i) for i in range(block.op_size())] == [last]
    last.set_type("maen")
    with pytest.raises(MissingKernelError, match="maen"):
        last.check_attrs()


def test_blocks_of_a_description():
    program = ProgramDesc()
    inner = program.append_block(program.block(0))
    op = program.block(0).append_op()
    op.set_block_attr("sub_block", inner)
    assert (inner.id, inner.parent, program.num_blocks()) == (1, 0, 2)
    assert op._block_attr_id("sub_block") == 1
    program.block(0).var(b"outside")
    assert inner.find_var_recursive(b"outside").name() == "outside"
    assert inner.find_var(b"outside") is None


def test_copies_do_not_change_the_program():
    x = fluid.data("x", [None, 3])
    out = fluid.layers.scale(x, 2.0)
    program = fluid.default_main_program()
    for copied in (ProgramDesc(program.desc), ProgramDesc(program.desc.serialize_to_string())):
        copied.block(0).op(0)._set_attr("scale", 3.0)
        assert copied.block(0).op(0).attr("scale") == 3.0
    assert program.global_block().ops[0].attr("scale") == 2.0
    copy_of_it = program.global_block().desc.append_op()
    copy_of_it.copy_from(program.global_block().ops[0].desc)
    copy_of_it.set_output("Out", ["again"])
    program.global_block().create_var(name="again", dtype="float32", shape=[-1, 3])
    given = np.ones((2, 3), "float32")
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": given}, fetch_list=[out, "again"])
    np.testing.assert_array_equal(found, [2 * given] * 2)


def test_slots_are_in_alphabetical_order():
    logits, label = fluid.data("x", [None, 3]), fluid.data("label", [None, 1], "int64")
    fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))
    op = fluid.default_main_program().global_block().ops[0]
    for names in (op.input_names, op.desc.input_names()):
        assert names == ["Label", "Logits"]  # Paddle's orders
    for names in (op.output_arg_names, op.desc.output_arg_names()):
        assert names == [op.output("Loss")[0], op.output("Softmax")[0]]
    assert op.input_arg_names == op.desc.input_arg_names() == ["label", "x"]
