"""``paddle.fluid.proto.framework_pb2``: messages of programs, for tools that read and write them.

Source: ``framework.proto`` of Paddle 1.8.
"""

from typing import Any, ClassVar

from dpexec.engine.core import dtypes
from dpexec.proto.message import Codes, Message

__all__ = ["AttrType", "BlockDesc", "OpDesc", "ProgramDesc", "VarDesc", "VarType", "Version"]


AttrType = Codes(dtypes.AttrType)


class Version(Message):
    """The version of a program."""

    kind = "Version"


class OpDesc(Message):
    """An operator."""

    kind = "OpDesc"

    class Attr(Message):
        """An attribute; which field holds it depends on its ``type``, an ``AttrType``."""

        kind = "Attr"

    class Var(Message):
        """Names of variables in a slot."""

        kind = "Slot"


class VarType(Message):
    """What a variable holds; has the codes of element types and kinds of variables, too."""

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
    """A variable."""

    kind = "VarDesc"


class BlockDesc(Message):
    """A block of a program."""

    kind = "BlockDesc"
    defaults: ClassVar[dict[str, Any]] = {"forward_block_idx": -1}


class ProgramDesc(Message):
    """A program, as ``__model__`` files hold it."""

    kind = "ProgramDesc"


for _code in dtypes.VarType:
    setattr(VarType, _code.name, _code)
