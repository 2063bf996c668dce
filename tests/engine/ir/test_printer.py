"""The text of programs, variables and operators, compared with Paddle's."""

import pytest

import dpexec as fluid
from dpexec.core import AttrType, EnforceNotMet
from dpexec.engine.ir.attributes import attribute_type

DATA = """\
name: "x"
type {
  type: LOD_TENSOR
  lod_tensor {
    tensor {
      data_type: FP32
      dims: -1
      dims: 4
    }
    lod_level: 0
  }
}
persistable: false
need_check_feed: true
"""

PARAMETER = """\
name: "w"
type {
  type: LOD_TENSOR
  lod_tensor {
    tensor {
      data_type: FP32
      dims: 4
      dims: 2
    }
  }
}
persistable: true
error_clip: None
stop_gradient: False
trainable: True
optimize_attr: {'learning_rate': 0.5}
regularizer: None
do_model_average: True
"""

SCALE = """\
inputs {
  parameter: "X"
  arguments: "x"
}
outputs {
  parameter: "Out"
  arguments: "tmp_0"
}
type: "scale"
"""


def network():
    x = fluid.data("x", [None, 4])
    attr = fluid.ParamAttr(name="w", learning_rate=0.5)
    return x, fluid.layers.fc(x, 2, param_attr=attr)


def test_variable_as_the_real_paddle_prints_it():
    x, _ = network()
    assert str(x) == DATA
    assert x.to_string(True, True) == DATA + "error_clip: None\nstop_gradient: True\n"


def test_parameter_with_details_as_the_real_paddle_prints_it():
    network()
    weight = fluid.default_main_program().global_block().var("w")
    assert weight.to_string(True, with_details=True) == PARAMETER
    assert PARAMETER.startswith(str(weight))


def test_operator_has_slots_type_attributes_and_the_line_of_the_user():
    x = fluid.data("x", [None, 4])
    text = str((x * 0.1).op)
    assert text.startswith(SCALE)
    assert 'name: "scale"\n  type: FLOAT\n  f: 0.10000000149011612\n' in text
    assert 'name: "bias_after_scale"\n  type: BOOLEAN\n  b: true\n' in text
    assert 'name: "op_role"\n  type: INT\n  i: 0\n' in text
    assert 'name: "op_callstack"\n  type: STRINGS\n  strings: "  File \\"' in text
    assert "text = str((x * 0.1).op)" in text


def test_program_holds_blocks_and_ends_with_the_version():
    network()
    program = fluid.default_main_program()
    text = str(program)
    assert text == repr(program) == program.to_string(True)
    assert text.startswith("blocks {\n  idx: 0\n  parent_idx: -1\n  vars {\n    name: ")
    assert text.endswith("version {\n  version: 1008005\n}\n")
    names = [line.split('"')[1] for line in text.splitlines() if line.startswith("    name: ")]
    assert names == list(program.global_block().vars)  # in the order of their creation
    details = program.to_string(True, with_details=True)
    assert "stop_gradient: True" in details
    assert "version" not in details


def test_block_is_its_fields_and_a_block_with_details_a_message():
    network()
    block = fluid.default_main_program().global_block()
    assert str(block).startswith("idx: 0\nparent_idx: -1\nvars {\n")
    assert block.to_string(True, with_details=True).startswith("blocks {\n  idx: 0\n")


def test_equal_programs_have_equal_texts():
    texts = []
    for _ in range(2):
        with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
            network()
            texts.append(str(fluid.default_main_program()))
    assert texts[0] == texts[1]


def test_sparse_variable_is_printed_as_rows():
    block = fluid.Program().global_block()
    var = block.create_var(
        name="g", shape=[9, 2], dtype="float32", type=fluid.core.VarDesc.VarType.SELECTED_ROWS
    )
    assert "type: SELECTED_ROWS\n  selected_rows {\n    data_type: FP32\n    dims: 9" in str(var)


def test_text_is_escaped():
    block = fluid.Program().global_block()
    var = block.create_var(name='a"\\\n\u00e9', shape=[1], dtype="float32")
    assert str(var).startswith('name: "a\\"\\\\\\n\\303\\251"\n')


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "BOOL"),
        (1, "INT"),
        (2**40, "LONG"),
        (1.5, "FLOAT"),
        ("a", "STRING"),
        ([1, 2], "INTS"),
        ([1, 2**40], "LONGS"),
        ([1, 2.5], "FLOATS"),
        (["a"], "STRINGS"),
        ([True, False], "INTS"),
        ([], "INTS"),
        (fluid.core.VarDesc.VarType.FP32, "INT"),
    ],
)
def test_attribute_types(value, kind):
    assert attribute_type(value) == AttrType[kind]


def test_attribute_type_of_shapes_and_blocks():
    assert attribute_type([2, 3], "shape", "fill_constant") == AttrType.LONGS
    assert attribute_type([2, 3], "shape", "reshape2") == AttrType.INTS
    assert attribute_type([], "op_role_var") == AttrType.STRINGS
    assert attribute_type([], "shape", "fill_constant") == AttrType.LONGS
    assert attribute_type([1], "int64_values", "assign_value") == AttrType.LONGS
    assert attribute_type([], "bool_values", "assign_value") == AttrType.INTS
    assert attribute_type([], "max_sizes", "prior_box") == AttrType.FLOATS
    assert attribute_type([4, 8], "min_sizes", "prior_box") == AttrType.FLOATS
    assert attribute_type(fluid.Program().global_block()) == AttrType.BLOCK


@pytest.mark.parametrize("value", [object(), ["a", 1], {"a": 1}, [True, 2]])
def test_attributes_that_programs_cannot_hold(value):
    with pytest.raises(EnforceNotMet, match="cannot be"):
        attribute_type(value, "a", "op")


def test_operator_answers_with_the_declared_type():
    op = (fluid.data("x", [None, 4]) * 2).op
    assert op.attr_type("scale") == AttrType.FLOAT
    assert op.attr_type("bias_after_scale") == AttrType.BOOL
