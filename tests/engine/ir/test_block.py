"""Blocks edited by hand: inserted, renamed and removed operators and variables."""

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


FOREIGN = {
    "mean": lambda layers, x, y: layers.mean(x),
    "scale": lambda layers, x, y: layers.scale(x, 2.0),
    "softmax": lambda layers, x, y: layers.softmax(x),
    "elementwise_add": lambda layers, x, y: layers.elementwise_add(x, y),
    "elementwise_mul": lambda layers, x, y: layers.elementwise_mul(y, x),
    "sum": lambda layers, x, y: layers.sums([x, y]),
    "concat": lambda layers, x, y: layers.concat([y, x]),
    "mul": lambda layers, x, y: layers.fc(x, 2),
}


@pytest.mark.parametrize("type", FOREIGN)
def test_layer_of_another_programs_variable_says_so(type):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4])
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        y = fluid.data("y", [None, 4])
        says = rf"{type}: variable x is not in this program(.|\n)*test_block"
        with pytest.raises(fluid.core.EnforceNotMet, match=says):
            FOREIGN[type](fluid.layers, x, y)
        assert not y.block.ops


def test_programs_are_merged_variable_by_variable_and_operator_by_operator():
    student, teacher = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(teacher, fluid.Program()):
        taught = fluid.layers.fc(fluid.data("x", [None, 2]), 3, bias_attr=False)
    block = student.global_block()
    for var in teacher.list_vars():
        block._clone_variable(var, force_persistable=False)
    assert {var.name for var in student.list_vars() if var.persistable} == {"fc_0.w_0"}
    assert block.var("x").is_data and block.var("x").shape == (-1, 2)
    assert block._clone_variable(taught, force_persistable=False).name == taught.name
    for op in teacher.global_block().ops:
        slots = [
            {slot: [block.var(name) for name in names(slot)] for slot in known}
            for names, known in ((op.input, op.input_names), (op.output, op.output_names))
        ]
        block.append_op(op.type, *slots, {name: op.attr(name) for name in op.attr_names})
    scope = fluid.Scope()
    scope.var("fc_0.w_0").get_tensor().set(np.ones((2, 3), np.float32), fluid.CPUPlace())
    with fluid.scope_guard(scope):
        feed = {"x": np.ones((1, 2), np.float32)}
        exe = fluid.Executor(fluid.CPUPlace())
        (value,) = exe.run(student, feed=feed, fetch_list=[taught.name])
    np.testing.assert_array_equal(value, [[2, 2, 2]])


def test_clone_is_persistable_unless_it_says_otherwise():
    first, second = fluid.Program().global_block(), fluid.Program().global_block()
    rows = first.create_var(name="rows", type=fluid.core.VarDesc.VarType.SELECTED_ROWS)
    raw = first.create_var(name="raw", type=fluid.core.VarDesc.VarType.RAW)
    assert second._clone_variable(rows).persistable
    assert second._clone_variable(rows).type == rows.type
    assert not second._clone_variable(raw).persistable


def test_executor_notices_attributes_that_are_removed():
    main, exe = fluid.Program(), fluid.Executor(fluid.CPUPlace())
    with fluid.program_guard(main, fluid.Program()):
        out = fluid.layers.scale(fluid.layers.fill_constant([1], "float32", 2.0), 3.0, bias=1.0)
    assert exe.run(main, fetch_list=[out])[0] == 7.0
    main.global_block().ops[-1]._remove_attr("bias")
    main.global_block()._sync_with_cpp()
    assert exe.run(main, fetch_list=[out])[0] == 6.0


def test_operators_without_a_known_type_are_refused_as_in_the_original():
    block = fluid.Program().global_block()
    with pytest.raises(ValueError, match=r"^`type` to initialized an Operator can not be None\.$"):
        block.append_op()
    with pytest.raises(ValueError, match=r'^Operator "relo" has not been registered\.') as caught:
        block.append_op("relo")
    assert "similar: relu" in caught.value.__notes__[0]


def test_operators_show_their_parameters_and_the_line_that_made_them():
    fluid.layers.relu(fluid.data("x", [None, 3]))
    (op,) = fluid.default_main_program().global_block().ops
    assert op.attr("op_role_var") == []
    assert "test_block.py" in op.attr("op_callstack")[0]
    assert {"op_role_var", "op_callstack", "op_device"} <= set(op.attr_names) == set(op.all_attrs())


@pytest.mark.parametrize(
    "change",
    [
        {"lod_level": 1},
        {"dtype": "int64"},
        {"dtype": "bool"},
        {"shape": [3]},
        {"shape": []},
        {"persistable": True},
        {"type": fluid.core.VarDesc.VarType.SELECTED_ROWS},
    ],
)
def test_variables_are_declared_again_only_as_they_are(change):
    block = fluid.Program().global_block()
    var = block.create_var(name="v", shape=[2], dtype="float32", persistable=False)
    assert block.create_var(name="v", shape=[2], lod_level=0, stop_gradient=True) is var
    assert var.stop_gradient
    with pytest.raises(ValueError, match="v has been created before"):
        block.create_var(name="v", **change)


def test_slots_that_an_operator_leaves_empty_hold_nothing():
    """Tools that prune ask every convolution for its bias."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        image = fluid.data("image", [None, 1, 4, 4])
        fluid.layers.conv2d(image, 2, 3, bias_attr=False)
        (op,) = fluid.default_main_program().global_block().ops
    assert op.input("Bias") == op.desc.input("Bias") == []
    with pytest.raises(fluid.core.EnforceNotMet, match="conv2d has no input Other, only"):
        op.input("Other")
    with pytest.raises(fluid.core.EnforceNotMet, match="conv2d has no output Bias, only"):
        op.output("Bias")


def test_the_last_declaration_of_a_parameter_says_how_it_is_trained():
    decay = fluid.regularizer.L2Decay(0.5)
    one, two = (fluid.initializer.Constant(value) for value in (1.0, 2.0))
    first = fluid.ParamAttr("w", initializer=one, trainable=False)
    last = fluid.ParamAttr("w", initializer=two, learning_rate=0.5, regularizer=decay)
    w, again = (fluid.layers.create_parameter([2], "float32", attr=a) for a in (first, last))
    assert again is w and w.trainable
    fluid.optimizer.SGD(1.0).minimize(fluid.layers.reduce_sum(w))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    assert executor.run(fetch_list=["w"])[0].tolist() == [0.25] * 2  # 1 - 0.5 * (1 + 0.5 * 1)
