"""``framework_pb2``: bytes and text of messages, compared with Paddle 1.8.5."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.proto.framework_pb2 import BlockDesc, OpDesc, ProgramDesc, VarDesc, VarType


def test_a_tensor_is_described_as_files_of_values_have_it():
    tensor = VarType.TensorDesc()
    tensor.data_type = VarType.FP32
    assert (VarType.Type.Name(5), VarType.Type.Value("FP32")) == ("FP32", VarType.FP32)
    tensor.dims.extend(np.array([2, -1]))
    data = bytes.fromhex("0805 1002 10ffffffffffffffffff01")
    assert (tensor.SerializeToString(), tensor.ByteSize()) == (data, len(data))
    found = VarType.TensorDesc()
    assert found.ParseFromString(data) == len(data)
    assert found == tensor and (found.data_type, list(found.dims)) == (VarType.FP32, [2, -1])


def test_a_program_can_be_read_changed_and_written():
    fluid.layers.fc(fluid.data("x", [None, 3], lod_level=1), 2, name="out")
    program = fluid.default_main_program()
    desc = ProgramDesc.FromString(program.desc.serialize_to_string())
    assert str(desc) == str(program)
    block = desc.blocks[0]
    assert (block.parent_idx, block.forward_block_idx) == (-1, -1)
    assert [op.type for op in block.ops] == ["mul", "elementwise_add"]
    (fed,) = [var for var in block.vars if var.name == "x"]
    assert fed.type.type == VarType.LOD_TENSOR and fed.type.lod_tensor.lod_level == 1
    fed.type.lod_tensor.lod_level = 0
    read = fluid.Program.parse_from_string(desc.SerializeToString())
    assert read.global_block().var("x").lod_level == 0


def test_reading_a_field_sets_nothing():
    var = VarDesc(name="x")
    assert (var.type.lod_tensor.tensor.data_type, var.persistable) == (0, False)
    assert not var.HasField("type") and var.SerializeToString() == b"\x0a\x01x"
    var.type.reader.SetInParent()
    assert var.HasField("type") and var.type.HasField("reader")
    var.ClearField("type")
    assert str(var) == 'name: "x"\n'


def test_messages_are_added_and_copied():
    block = BlockDesc(idx=1)
    op = block.ops.add(type="relu")
    op.inputs.add(parameter="X", arguments=["a"])
    other = BlockDesc()
    other.CopyFrom(block)
    other.ops[0].inputs[0].arguments.append("b")
    assert (op.inputs[0].arguments, other == block) == (["a"], False)
    block.Clear()
    assert block == BlockDesc()


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: OpDesc().kinds, AttributeError, "OpDesc has no field 'kinds'"),
        (lambda: OpDesc(typo="relu"), AttributeError, "OpDesc has no field 'typo'"),
        (lambda: setattr(OpDesc(), "attrs", []), AttributeError, "cannot be assigned"),
        (lambda: OpDesc.Attr(i=0.5), TypeError, "integer"),
        (lambda: OpDesc.Attr().ints.add(), AttributeError, "use append"),
        (lambda: OpDesc().HasField("attrs"), ValueError, "repeated"),
        (lambda: VarType.Type.Name(99), ValueError, "99"),
        (lambda: VarType.Type.Value("FP8"), ValueError, "no value 'FP8'"),
        (lambda: ProgramDesc.FromString(b"\xff"), EnforceNotMet, "no valid ProgramDesc"),
    ],
)
def test_what_messages_refuse(wrong, error, text):
    with pytest.raises(error, match=text):
        wrong()
