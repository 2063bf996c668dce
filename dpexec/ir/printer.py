"""Programs in protobuf text form, as ``str(program)`` shows them in fluid.

Fields stand as in Paddle's ``framework.proto``; variables and operators stand in the order of
their creation, so equal programs have equal texts. Of the call stack only the user's line is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.core.dtypes import VarType
from dpexec.errors import EnforceNotMet

if TYPE_CHECKING:
    from dpexec.ir.block import Block
    from dpexec.ir.operator import Operator
    from dpexec.ir.program import Program
    from dpexec.ir.spec import Spec
    from dpexec.ir.variable import Variable

__all__ = ["attribute_type", "block_text", "operator_text", "program_text", "variable_text"]

_VERSION = 1008005  # of the program format: Paddle 1.8.5
_INT32 = range(-(2**31), 2**31)
_FIELDS = {
    "INT": "i",
    "FLOAT": "f",
    "STRING": "s",
    "INTS": "ints",
    "FLOATS": "floats",
    "STRINGS": "strings",
    "BOOLEAN": "b",
    "BOOLEANS": "bools",
    "BLOCK": "block_idx",
    "LONG": "l",
    "BLOCKS": "blocks_idx",
    "LONGS": "longs",
}
_LONG_SHAPES = {"fill_constant", "uniform_random", "gaussian_random"}
_EMPTY_LISTS = {
    "op_role_var": "STRINGS",
    "op_callstack": "STRINGS",
    "bool_values": "BOOLEANS",
    "fp32_values": "FLOATS",
    "int64_values": "LONGS",
    "backward_skip_vars": "STRINGS",
    "skip_eager_deletion_vars": "STRINGS",
    "epmap": "STRINGS",
    "table_names": "STRINGS",
    "height_sections": "LONGS",
}
_LONG_NUMBERS = {"padding_idx", "min_row_size_to_use_multithread"}


# ---- attributes


def attribute_type(value: Any, name: str = "", op_type: str = "") -> str:
    """The protobuf type of an attribute.

    Args:
        value: the attribute.
        name: its name, which decides about empty lists.
        op_type: its operator: some declare 64 bits for numbers that would fit into 32.

    Raises:
        EnforceNotMet: a program cannot hold such a value.
    """
    from dpexec.ir.block import Block

    if isinstance(value, (list, tuple)):
        if not value:
            return _EMPTY_LISTS.get(name, "INTS")
        kinds = {attribute_type(item) for item in value}
        if name == "int64_values" or (name == "shape" and op_type in _LONG_SHAPES):
            kinds.add("LONG")
        if len(kinds) > 1 and kinds <= {"INT", "LONG", "FLOAT"}:
            kinds = {"FLOAT" if "FLOAT" in kinds else "LONG"}
        if len(kinds) == 1:
            return kinds.pop() + "S"
    elif isinstance(value, (bool, np.bool_)):
        return "BOOLEAN"
    elif isinstance(value, (int, np.integer)):
        return "INT" if int(value) in _INT32 and name not in _LONG_NUMBERS else "LONG"
    elif isinstance(value, (float, np.floating)):
        return "FLOAT"
    elif isinstance(value, str):
        return "STRING"
    elif isinstance(value, Block):
        return "BLOCK"
    raise EnforceNotMet(
        f"attribute {name or '?'} of {op_type or 'an operator'} cannot be {value!r}"
    )


def _literal(kind: str, value: Any) -> str:
    if kind.startswith("BOOLEAN"):
        return "true" if value else "false"
    if kind.startswith("FLOAT"):
        return repr(float(np.float32(value)))
    if kind.startswith("STRING"):
        return _quoted(value)
    return str(int(value.idx if kind.startswith("BLOCK") else value))


def _quoted(text: str) -> str:
    escapes = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}
    parts = []
    for byte in text.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        plain = char if 32 <= byte < 127 else f"\\{byte:03o}"
        parts.append(escapes.get(char, plain))
    return f'"{"".join(parts)}"'


# ---- messages: lines without indentation around the whole


def _message(name: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"{name} {{"
    yield from (f"  {line}" for line in lines)
    yield "}"


def _tensor(tensor: Variable | Spec) -> Iterator[str]:
    yield f"data_type: {tensor.dtype.name}"
    yield from (f"dims: {dim}" for dim in tensor.shape)


def _field(field: Spec) -> Iterator[str]:
    yield from _message("tensor", _tensor(field))
    yield f"lod_level: {field.lod_level}"


def _type(var: Variable) -> Iterator[str]:
    yield f"type: {var.type.name}"
    if var.type == VarType.SELECTED_ROWS:
        yield from _message("selected_rows", _tensor(var))
    elif var.type in (VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY):
        inner = list(_message("tensor", _tensor(var)))
        if var.is_data or var.lod_level:
            inner.append(f"lod_level: {var.lod_level}")
        name = "lod_tensor" if var.type == VarType.LOD_TENSOR else "tensor_array"
        yield from _message(name, inner)
    elif var.type == VarType.READER:
        fields = (line for field in var.fields for line in _message("lod_tensor", _field(field)))
        yield from _message("reader", fields)


def _variable(var: Variable, details: bool) -> Iterator[str]:
    from dpexec.ir.variable import Parameter

    yield f"name: {_quoted(var.name)}"
    yield from _message("type", _type(var))
    yield f"persistable: {_literal('BOOLEAN', var.persistable)}"
    if var.need_check_feed:
        yield "need_check_feed: true"
    if details:
        names = ["error_clip", "stop_gradient"]
        if isinstance(var, Parameter):
            names += ["trainable", "optimize_attr", "regularizer", "do_model_average"]
        yield from (f"{name}: {getattr(var, name)}" for name in names)


def _slot(name: str, arguments: list[str]) -> Iterator[str]:
    yield f"parameter: {_quoted(name)}"
    yield from (f"arguments: {_quoted(argument)}" for argument in arguments)


def _attribute(op_type: str, name: str, value: Any) -> Iterator[str]:
    kind = attribute_type(value, name, op_type)
    yield f"name: {_quoted(name)}"
    yield f"type: {kind}"
    items = value if isinstance(value, (list, tuple)) else [value]
    yield from (f"{_FIELDS[kind]}: {_literal(kind, item)}" for item in items)


def _operator(op: Operator) -> Iterator[str]:
    for slot, names in sorted(op.inputs.items()):
        yield from _message("inputs", _slot(slot, names))
    for slot, names in sorted(op.outputs.items()):
        yield from _message("outputs", _slot(slot, names))
    yield f"type: {_quoted(op.type)}"
    attrs = {name: value for name, value in op.attrs.items() if value is not None}
    if op.callsite is not None:
        attrs["op_callstack"] = [f"  {op.callsite}\n"]
    for name, value in attrs.items():
        yield from _message("attrs", _attribute(op.type, name, value))


def _block(block: Block, details: bool) -> Iterator[str]:
    yield f"idx: {block.idx}"
    yield f"parent_idx: {block.parent_idx}"
    for var in block.vars.values():
        yield from _message("vars", _variable(var, details))
    for op in block.ops:
        yield from _message("ops", _operator(op))
    if block.forward_block_idx >= 0:
        yield f"forward_block_idx: {block.forward_block_idx}"


def _text(lines: Iterable[str]) -> str:
    return "\n".join([*lines, ""])


def variable_text(var: Variable, details: bool = False) -> str:
    """A variable; ``details`` adds what stands outside the protobuf."""
    return _text(_variable(var, details))


def operator_text(op: Operator) -> str:
    """An operator."""
    return _text(_operator(op))


def block_text(block: Block, details: bool = False) -> str:
    """A block; with ``details`` it is wrapped as in a program, as fluid does."""
    lines = _block(block, details)
    return "\n".join(_message("blocks", lines)) if details else _text(lines)


def program_text(program: Program, details: bool = False) -> str:
    """A program; ``details`` adds what stands outside the protobuf and leaves out the version."""
    if details:
        return "".join(block_text(block, details) for block in program.blocks)
    lines = [line for block in program.blocks for line in _message("blocks", _block(block, False))]
    return _text([*lines, *_message("version", [f"version: {_VERSION}"])])
