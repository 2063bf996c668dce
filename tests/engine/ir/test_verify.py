"""The checker of programs: a program for every rule that breaks it."""

import re

import pytest

import dpexec as fluid
from dpexec.core import EnforceNotMet
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.verify import RULES, verify


def trained():
    """A small training program."""
    x = fluid.data("x", [None, 4])
    y = fluid.data("y", [None, 1])
    hidden = fluid.layers.fc(x, 3, act="relu", name="hidden")
    out = fluid.layers.fc(hidden, 1, name="out")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return fluid.default_main_program()


def operator(program, type_):
    return next(op for op in program.global_block().ops if op.type == type_)


def move_block(program):
    program.global_block().parent_idx = 3


def rename_variable(program):
    program.global_block().var("x").name = "z"


def forget_parameter(program):
    program.global_block().var("hidden.w_0").persistable = False


def reshape_gradient(program):
    program.global_block().var("hidden.w_0@GRAD")._shape = (3, 4)


def forget_operator(program):
    operator(program, "relu").type = "relux"


def drop_input(program):
    operator(program, "mul").inputs["Y"] = []


def double_input(program):
    operator(program, "mul").inputs["X"] *= 2


def add_slot(program):
    operator(program, "relu").inputs["Y"] = ["x"]


def forget_variable(program):
    del program.global_block().vars["hidden.tmp_0"]


def use_before_definition(program):
    ops = program.global_block().ops
    ops.insert(0, ops.pop(1))


def write_twice(program):
    momentum = operator(program, "momentum")
    momentum.outputs["VelocityOut"] = momentum.outputs["ParamOut"]


def put_an_object(program):
    operator(program, "relu").attrs["use_cudnn"] = object()


def change_type(program):
    operator(program, "mul").attrs["x_num_col_dims"] = "1"


def invent_role(program):
    operator(program, "relu").attrs["op_role"] = 7


def halve_pair(program):
    operator(program, "momentum").attrs["op_role_var"] = ["hidden.w_0"]


def pair_in_forward(program):
    operator(program, "relu").attrs["op_role_var"] = ["hidden.w_0", "hidden.w_0@GRAD"]


def take_another_programs_body(program):
    operator(program, "relu").attrs["sub_block"] = fluid.Program().global_block()


def take_the_block_itself_as_body(program):
    operator(program, "relu").attrs["sub_block"] = program.global_block()


def loop_without_end(program):
    layers = fluid.layers
    with fluid.program_guard(program):
        step, last = layers.zeros([1], "int64"), layers.ones([1], "int64")
        condition = layers.less_than(step, last)
        with layers.While(condition).block():
            layers.less_than(layers.increment(step), last, cond=condition)
    del program.blocks[-1].ops[-1]


def feed_without_column(program):
    block = program.global_block()
    fluid.io.prepend_feed_ops(program, ["x"])
    del block.ops[0].attrs["col"]


def hold_what_is_no_tensor(program):
    program.global_block().vars["x"]._dtype = VarType.FETCH_LIST


def role_of_words(program):
    operator(program, "relu").attrs["op_role_var"] = "hidden.w_0"


def empty_list_for_a_number(program):
    operator(program, "mul").attrs["x_num_col_dims"] = []


def gradient_of_a_later_block(program):
    program.global_block().forward_block_idx = 3


BREAKS = {
    loop_without_end: (15, "writes its condition"),
    feed_without_column: (13, "attribute col is missing"),
    hold_what_is_no_tensor: (14, "variable x has elements of type"),
    role_of_words: (10, "op_role_var must be STRINGS, not STRING"),
    empty_list_for_a_number: (10, "x_num_col_dims must be INT"),
    gradient_of_a_later_block: (1, "block 0 cannot be the gradient of block 3"),
    move_block: (1, "parent 3"),
    rename_variable: (2, "z"),
    forget_parameter: (3, "hidden.w_0"),
    reshape_gradient: (4, "hidden.w_0@GRAD"),
    forget_operator: (5, "relux"),
    drop_input: (6, "input Y is missing"),
    double_input: (6, "takes one variable, not 2"),
    add_slot: (6, "no input Y"),
    forget_variable: (7, "hidden.tmp_0"),
    use_before_definition: (8, "hidden.tmp_0"),
    write_twice: (9, "hidden.b_0 is written twice"),
    put_an_object: (10, "use_cudnn"),
    change_type: (10, "x_num_col_dims"),
    invent_role: (11, "op_role 7"),
    halve_pair: (11, "pairs"),
    pair_in_forward: (11, "forward"),
    take_another_programs_body: (12, "no block of this program"),
    take_the_block_itself_as_body: (12, "block 0, lies in block -1"),
}


def test_training_program_and_its_copies_are_legal():
    program = trained()
    for legal in (program, fluid.default_startup_program(), program.clone(for_test=True)):
        verify(legal)


@pytest.mark.parametrize("break_it", BREAKS)
def test_broken_rule_is_named(break_it):
    number, named = BREAKS[break_it]
    program = trained()
    break_it(program)
    with pytest.raises(EnforceNotMet, match=re.escape(named)) as caught:
        verify(program)
    assert f"rule {number} ({RULES[number]})" in str(caught.value)


def test_message_shows_the_line_of_the_user():
    program = trained()
    drop_input(program)
    with pytest.raises(EnforceNotMet, match=r"hidden = fluid.layers.fc\(x, 3"):
        verify(program)


def test_every_rule_is_numbered_described_and_tested():
    assert list(RULES) == list(range(1, len(RULES) + 1))
    assert all(RULES.values())
    assert {number for number, _ in BREAKS.values()} == set(RULES)


def test_gradient_program_with_shared_input_is_legal():
    x = fluid.data("x", [None, 4])
    h = fluid.layers.fc(x, 4)
    loss = fluid.layers.mean(h * h + fluid.layers.relu(h))
    fluid.optimizer.SGD(0.1).minimize(loss)
    verify(fluid.default_main_program())
