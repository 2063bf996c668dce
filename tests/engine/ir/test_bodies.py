"""Operators with a ``sub_block``: copies, pickles, bytes and text of their programs."""

import pickle

import pytest

import dpexec as fluid
from dpexec.engine.ir.verify import verify

layers = fluid.layers


def in_body(program, condition, build):
    """Append a ``conditional_block`` with the layers of ``build``."""
    block = program.current_block()
    body = program._create_block()
    build()
    program._rollback()
    block.append_op(
        "conditional_block",
        {"Cond": [condition]},
        {},
        {"sub_block": body, "is_scalar_condition": True},
    )
    return body


@pytest.fixture
def program():
    """``y`` becomes 2x when ``flag`` holds; ``z`` lies in a body inside the body."""
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 4])
        flag = fluid.data("flag", [1], dtype="bool")
        y = main.global_block().create_var(name="y", shape=[-1, 4], dtype="float32")

        def inner():
            layers.assign(layers.scale(main.block(1).var("double"), 1.0), y)

        def outer():
            double = main.current_block().create_var(name="double", dtype="float32")
            main.current_block().append_op("scale", {"X": [x]}, {"Out": [double]}, {"scale": 2.0})
            in_body(main, flag, inner)

        in_body(main, flag, outer)
    return main


def assert_whole(program):
    verify(program)
    assert [block.parent_idx for block in program.blocks] == [-1, 0, 1]
    (op,) = program.block(0).ops
    assert op._block_attr_id("sub_block") == 1
    assert op.attr("sub_block") is program.block(1) is op.bodies[0]
    assert program.block(1).ops[1].attr("sub_block") is program.block(2)
    assert [op.type for op in program.block(2).ops] == ["scale", "assign"]


def test_operator_reads_and_writes_what_its_body_does(program):
    (op,) = program.block(0).ops
    assert op.needs == ["flag", "x"]
    assert op.reads == ["flag", "x", "y"]
    assert op.writes == ["y"]
    assert program.block(1).ops[1].needs == ["flag", "double"]


def test_clone_has_bodies_of_its_own(program):
    assert_whole(program)
    copy = program.clone()
    assert_whole(copy)
    assert copy.block(1) is not program.block(1)
    assert str(copy) == str(program)


def test_pickled_program_keeps_its_bodies(program):
    assert_whole(pickle.loads(pickle.dumps(program)))


def test_bytes_keep_bodies(program):
    again = fluid.Program.parse_from_string(program.desc.serialize_to_string())
    assert_whole(again)
    assert str(again) == str(program)
    assert not again.global_block().var("y").is_data


def test_text_names_the_block(program):
    (op,) = program.block(0).ops
    lines = [line.strip() for line in str(op).splitlines()]
    at = lines.index('name: "sub_block"')
    assert lines[at + 1 : at + 3] == ["type: BLOCK", "block_idx: 1"]
    assert op.attr_type("sub_block") == fluid.core.AttrType.BLOCK


def test_clone_for_test_leaves_out_bodies_of_training(program):
    block = program.global_block()
    block.ops[0]._set_attr("op_role", 2)
    copy = program.clone(for_test=True)
    assert copy.num_blocks == 1 and not copy.global_block().ops


def test_dropped_bodies_make_the_others_move_up(program):
    with fluid.program_guard(program):
        flag = program.global_block().var("flag")
        in_body(program, flag, lambda: layers.fill_constant([1], "float32", 0.0))
    assert program.num_blocks == 4
    program.global_block()._remove_op(0)
    program._drop_unused_blocks()
    assert [block.idx for block in program.blocks] == [0, 1]
    assert program.global_block().ops[0]._block_attr_id("sub_block") == 1
    verify(program)
