"""Programs in protobuf text form, as ``str(program)`` shows them in fluid.

Variables and operators are in the order of their creation, so equal programs have equal texts. The
call stack is just the user's line, unless the program was read from a file that fluid wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.core.dtypes import AttrType, VarType
from dpexec.engine.formats import wire
from dpexec.engine.ir.desc import VERSION, block_message, op_message, var_message
from dpexec.engine.ir.variable import Parameter, Variable

if TYPE_CHECKING:
    from dpexec.engine.ir.block import Block
    from dpexec.engine.ir.operator import Operator
    from dpexec.engine.ir.program import Program

__all__ = ["block_text", "operator_text", "program_text", "variable_text"]

_TYPES = {int(kind): kind.name for kind in VarType}
_NAMES = {  # of the values of enums
    ("Attr", "type"): {int(kind): kind.name.replace("BOOL", "BOOLEAN") for kind in AttrType},
    ("VarType", "type"): _TYPES,
    ("TensorDesc", "data_type"): _TYPES,
}
_OUTSIDE = "outside"
"""The message field with what fluid keeps of a variable outside the protobuf, as text lines."""


def message_text(kind: str, message: wire.Message) -> str:
    return "\n".join([*_lines(kind, message), ""])


def _lines(kind: str, message: wire.Message) -> Iterator[str]:
    """A message, without a frame around it."""
    for name, field_kind, repeated in wire.FIELDS[kind].values():
        values = message.get(name, []) if repeated or name not in message else [message[name]]
        for value in values:
            if field_kind in wire.FIELDS:
                yield f"{name} {{"
                yield from (f"  {line}" for line in _lines(field_kind, value))
                yield "}"
            elif (kind, name) in _NAMES:
                yield f"{name}: {_NAMES[kind, name][value]}"
            else:
                yield f"{name}: {_literal(field_kind, value)}"
    yield from message.get(_OUTSIDE, ())


def _literal(kind: str, value: Any) -> str:
    if kind == "bool":
        return "true" if value else "false"
    if kind == "float":
        return repr(float(np.float32(value)))
    return _quoted(value) if kind == "str" else str(int(value))


def _quoted(text: str) -> str:
    escapes = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}
    parts = []
    for byte in text.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        plain = char if 32 <= byte < 127 else f"\\{byte:03o}"
        parts.append(escapes.get(char, plain))
    return f'"{"".join(parts)}"'


def _with_details(var: Variable) -> wire.Message:
    names = ["error_clip", "stop_gradient"]
    if isinstance(var, Parameter):
        names += ["trainable", "optimize_attr", "regularizer", "do_model_average"]
    return {**var_message(var), _OUTSIDE: [f"{name}: {getattr(var, name)}" for name in names]}


def variable_text(var: Variable, details: bool = False) -> str:
    """A variable; ``details`` adds the fields that fluid keeps outside the protobuf."""
    return message_text("VarDesc", _with_details(var) if details else var_message(var))


def operator_text(op: Operator) -> str:
    """An operator."""
    return message_text("OpDesc", op_message(op))


def block_text(block: Block, details: bool = False) -> str:
    """A block; with ``details`` it is wrapped as in a program, as fluid does."""
    message = block_message(block)
    if not details:
        return message_text("BlockDesc", message)
    message["vars"] = [_with_details(var) for var in block.vars.values()]
    return "\n".join(_lines("ProgramDesc", {"blocks": [message]}))


def program_text(program: Program, details: bool = False) -> str:
    """A program; ``details`` adds fields outside the protobuf and leaves out the version."""
    if details:
        return "".join(block_text(block, details) for block in program.blocks)
    blocks = [block_message(block) for block in program.blocks]
    return message_text("ProgramDesc", {"blocks": blocks, "version": {"version": VERSION}})
