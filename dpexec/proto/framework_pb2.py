"""``paddle.fluid.proto.framework_pb2``: messages of programs, for tools that read and write them.

Source: ``framework.proto`` of Paddle 1.8.
"""

from typing import Any, ClassVar

from dpexec.engine.core import dtypes
from dpexec.proto.message import Codes, Message

__all__ = ["AttrType", "BlockDesc", "OpDesc", "ProgramDesc", "VarDesc", "VarType", "Version"]


AttrType = Codes(dtypes.AttrType)


class Version(Message):
    """The version of a program.

    Args:
        fields: the fields of the message by name: ``version``.

    Example:
        >>> from dpexec.proto import framework_pb2
        >>> framework_pb2.Version(version=1).version
        1
    """

    kind = "Version"


class OpDesc(Message):
    """An operator.

    Args:
        fields: the fields of the message by name, such as ``type``, ``inputs`` and ``attrs``.

    Example:
        >>> from dpexec.proto import framework_pb2
        >>> framework_pb2.OpDesc(type="relu").type
        'relu'
    """

    kind = "OpDesc"

    class Attr(Message):
        """An attribute; which field holds it depends on its ``type``, an ``AttrType``."""

        kind = "Attr"

    class Var(Message):
        """Names of variables in a slot."""

        kind = "Slot"


class VarType(Message):
    """What a variable holds; has the codes of element types and kinds of variables, too.

    Args:
        fields: the fields of the message by name, such as ``type`` and ``lod_tensor``.

    Example:
        >>> from dpexec.proto import framework_pb2
        >>> framework_pb2.VarType.FP32, framework_pb2.VarType.LOD_TENSOR
        (VarType.FP32, VarType.LOD_TENSOR)
    """

    kind = "VarType"

    class TensorDesc(Message):
        """Element type and shape of a tensor."""

        kind = "TensorDesc"

    class LoDTensorDesc(Message):
        """A tensor with sequences, or an array of these."""

        kind = "LoDTensorDesc"

    LoDTensorArrayDesc = LoDTensorDesc

    class ReaderDesc(Message):
        """What a reader gives."""

        kind = "ReaderDesc"

    class Tuple(Message):
        """Several values."""

        kind = "Tuple"

    Type = Codes(dtypes.VarType)


class VarDesc(Message):
    """A variable.

    Args:
        fields: the fields of the message by name, such as ``name``, ``type`` and ``persistable``.

    Example:
        >>> from dpexec.proto import framework_pb2
        >>> framework_pb2.VarDesc(name="fc_0.w_0", persistable=True).persistable
        True
    """

    kind = "VarDesc"


class BlockDesc(Message):
    """A block of a program.

    Args:
        fields: the fields of the message by name, such as ``idx``, ``vars`` and ``ops``.

    Example:
        >>> from dpexec.proto import framework_pb2
        >>> framework_pb2.BlockDesc(idx=0, parent_idx=-1).parent_idx
        -1
    """

    kind = "BlockDesc"
    defaults: ClassVar[dict[str, Any]] = {"forward_block_idx": -1}


class ProgramDesc(Message):
    """A program, as ``__model__`` files hold it.

    Args:
        fields: the fields of the message by name: ``blocks`` and ``version``.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.proto import framework_pb2
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> message = framework_pb2.ProgramDesc()
        >>> _ = message.ParseFromString(main.desc.serialize_to_string())
        >>> message.blocks[0].ops[0].type
        'relu'
    """

    kind = "ProgramDesc"


for _code in dtypes.VarType:
    setattr(VarType, _code.name, _code)
