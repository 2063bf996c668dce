"""Programs as Paddle 1.x stores them: ``ProgramDesc`` of its ``framework.proto``, both ways."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.core.dtypes import AttrType, VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.formats import wire
from dpexec.engine.ir import opdef, roles
from dpexec.engine.ir.attributes import FIELDS, attribute_type
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import CallSite
from dpexec.engine.ir.feed_fetch import fed_names, fetched_names
from dpexec.engine.ir.operator import CALLSTACK, Operator
from dpexec.engine.ir.spec import Spec
from dpexec.engine.ir.variable import Parameter, Variable
from dpexec.engine.ir.views import BlockView

if TYPE_CHECKING:
    from dpexec.engine.ir.program import Program

__all__ = [
    "VERSION",
    "ProgramDesc",
    "block_message",
    "op_message",
    "parse",
    "serialize",
    "var_message",
]

VERSION = 1008005
"""Of the format: Paddle 1.8.5."""

_TENSORS = {VarType.LOD_TENSOR: "lod_tensor", VarType.LOD_TENSOR_ARRAY: "tensor_array"}
_INVALID = "these bytes are no valid ProgramDesc"
_FRAME = re.compile(r'File "(.+)", line (\d+), in (\S+)')


class ProgramDesc:
    """What ``program.desc`` gives: the program in Paddle's own format.

    Args:
        source: a program, which methods read and write directly; or the source of a new program:
            another description, its bytes, or None for an empty one.

    Example:
        >>> import dpexec as fluid
        >>> main = fluid.Program()
        >>> with fluid.unique_name.guard(), fluid.program_guard(main):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> desc = fluid.core.ProgramDesc(main.desc.serialize_to_string())
        >>> desc.num_blocks(), desc.block(0).op(0).type()
        (1, 'relu')
    """

    def __init__(self, source: Program | ProgramDesc | bytes | None = None) -> None:
        from dpexec.engine.ir.program import Program

        self._program: Program
        if isinstance(source, ProgramDesc):
            self._program = source._program.clone()
        elif isinstance(source, bytes):
            self._program = parse(source)
        else:
            self._program = source or Program()

    def block(self, index: int) -> BlockView:
        """The block of this number."""
        return self._program.block(index).desc

    def num_blocks(self) -> int:
        """How many blocks there are."""
        return self._program.num_blocks

    def append_block(self, parent: BlockView) -> BlockView:
        """Add a block.

        Args:
            parent: the one around it.
        """
        made = Block(self._program, self.num_blocks(), parent.id)
        self._program.blocks.append(made)
        return made.desc

    def serialize_to_string(self) -> bytes:
        """The program as a ``ProgramDesc`` message, which Paddle 1.x reads."""
        return serialize(self._program)

    def flush(self) -> None:
        """Make executors compile the program again; there is no C++ copy to update here."""
        self._program._changed()

    def get_feed_target_names(self) -> list[str]:
        """Names of an inference model's inputs, in order."""
        return fed_names(self._program)

    def get_fetch_target_names(self) -> list[str]:
        """Names of an inference model's outputs, in order."""
        return fetched_names(self._program)


# ---- writing


def serialize(program: Program) -> bytes:
    """A program as bytes of a ``ProgramDesc`` message."""
    message: wire.Message = {
        "blocks": [block_message(block) for block in program.blocks],
        "version": {"version": VERSION},
    }
    return wire.encode("ProgramDesc", message)


def block_message(block: Block) -> wire.Message:
    """A block as a ``BlockDesc`` message."""
    message: wire.Message = {
        "idx": block.idx,
        "parent_idx": block.parent_idx,
        "vars": [var_message(var) for var in block.vars.values()],
        "ops": [op_message(op) for op in block.ops],
    }
    if block.forward_block_idx >= 0:
        message["forward_block_idx"] = block.forward_block_idx
    return message


def var_message(var: Variable) -> wire.Message:
    """A variable as a ``VarDesc`` message."""
    tensor = _tensor_message(var)
    kind: wire.Message = {"type": int(var.type)}
    if var.type == VarType.READER:
        fields = [{"tensor": _tensor_message(f), "lod_level": f.lod_level} for f in var.fields]
        kind["reader"] = {"lod_tensor": fields}
    elif var.type == VarType.SELECTED_ROWS:
        kind["selected_rows"] = tensor
    elif var.type in _TENSORS:
        levels = {"lod_level": var.lod_level} if var.lod_level or not var.persistable else {}
        kind[_TENSORS[var.type]] = {"tensor": tensor, **levels}
    message = {"name": var.name, "type": kind, "persistable": bool(var.persistable)}
    if var.need_check_feed:
        message["need_check_feed"] = True
    return message


def _tensor_message(tensor: Variable | Spec) -> wire.Message:
    return {"data_type": int(tensor.dtype), "dims": list(tensor.shape)}


def op_message(op: Operator) -> wire.Message:
    """An operator as an ``OpDesc`` message."""
    attrs = {name: value for name, value in op.attrs.items() if value is not None}
    if op.callsite is not None:
        attrs.setdefault(CALLSTACK, [f"  {op.callsite}\n"])
    return _op(op.type, sorted(op.inputs.items()), sorted(op.outputs.items()), attrs)


def _op(type: str, inputs: Iterable[Any], outputs: Iterable[Any], attrs: Any) -> wire.Message:
    return {
        "inputs": [{"parameter": slot, "arguments": names} for slot, names in inputs],
        "outputs": [{"parameter": slot, "arguments": names} for slot, names in outputs],
        "type": type,
        "attrs": [_attribute_message(type, name, value) for name, value in attrs.items()],
    }


def _attribute_message(op_type: str, name: str, value: Any) -> wire.Message:
    kind = attribute_type(value, name, op_type)
    if kind == AttrType.BLOCK:
        value = value.idx
    elif kind == AttrType.BLOCKS:
        value = [block.idx for block in value]
    return {"name": name, "type": int(kind), FIELDS[kind]: value}


# ---- reading


def parse(data: bytes) -> Program:
    """The program that a ``ProgramDesc`` message describes.

    The format does not say which variables are parameters and which are fed, so both are inferred.
    A persistable variable is a parameter if an operator's role names it as trained, or if forward
    operators only read it; as in Paddle, an optimizer that is added later does not train the
    latter. A variable is fed if it is read and only ``feed`` operators write it.

    Raises:
        EnforceNotMet: the bytes are damaged.
        MissingKernelError: the program has an operator that dpexec does not know.
    """
    from dpexec.engine.ir.program import Program
    from dpexec.engine.ir.verify import verify_saved

    message = wire.decode("ProgramDesc", data)
    if not message.get("blocks"):
        raise EnforceNotMet(f"{_INVALID}: it has no blocks")
    program = Program()
    for number, part in enumerate(message["blocks"]):
        with _naming(f"block {number}"):
            program.blocks[number:] = [Block(program, part["idx"], part["parent_idx"])]
    for block, part in zip(program.blocks, message["blocks"], strict=True):
        block.forward_block_idx = part.get("forward_block_idx", -1)
        for number, var in enumerate(part.get("vars", [])):
            with _naming(f"variable {var.get('name', number)}"):
                _add_var(block, var)
        for number, op in enumerate(part.get("ops", [])):
            with _naming(f"operator {op.get('type', '?')}, number {number} of block {block.idx}"):
                _add_op(block, op)
    try:
        verify_saved(program)
    except EnforceNotMet as error:
        raise EnforceNotMet(f"{_INVALID}: {error}") from None
    for op in (op for block in program.blocks for op in block.ops):
        op.callsite = _user_line(op.attrs.get(CALLSTACK, []))
    for name in fed_names(program) + fetched_names(program):
        if not program.global_block().has_var(name):
            raise EnforceNotMet(f"{_INVALID}: no variable {name!r}")
    _find_parameters(program)
    _find_data(program)
    return program


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Add the name of the message part to errors raised inside."""
    try:
        yield
    except EnforceNotMet:
        raise
    except KeyError as error:
        raise EnforceNotMet(f"{_INVALID}: {what}: it has no field {error}") from None
    except (IndexError, OverflowError, TypeError, ValueError) as error:
        raise EnforceNotMet(f"{_INVALID}: {what}: {error}") from error


def _add_var(block: Block, message: wire.Message) -> None:
    described = message["type"]
    kind = VarType(described["type"])
    outer = described.get(_TENSORS.get(kind, ""), {})
    tensor = described.get("selected_rows") or outer.get("tensor", {})
    name = message["name"]
    block.vars[name] = Variable(
        block,
        type=kind,
        name=name,
        shape=tensor.get("dims", []),
        dtype=VarType(tensor.get("data_type", VarType.FP32)),
        lod_level=outer.get("lod_level", 0),
        persistable=message.get("persistable", False),
        need_check_feed=message.get("need_check_feed", False),
        fields=[_field(part) for part in described.get("reader", {}).get("lod_tensor", [])],
    )


def _field(message: wire.Message) -> Spec:
    tensor = message["tensor"]
    dims, dtype = tuple(tensor.get("dims", [])), VarType(tensor["data_type"])
    return Spec(dims, dtype, lod_level=message.get("lod_level", 0))


def _add_op(block: Block, message: wire.Message) -> None:
    inputs, outputs = (_slots(message.get(field, [])) for field in ("inputs", "outputs"))
    attrs = {}
    for part in message.get("attrs", []):
        with _naming(f"operator {message['type']}: attribute {part.get('name', '?')}"):
            attrs[part["name"]] = _attribute(block.program, part)
    op = Operator(block, message["type"], inputs, outputs, attrs, fill_defaults=False)
    op.callsite = None
    block.ops.append(op)
    for name in op.output_arg_names:
        if name in block.vars:
            block.vars[name].op = op


def _slots(messages: Iterable[wire.Message]) -> dict[str, list[str]]:
    """The names of variables by slot.

    Raises:
        ValueError: a slot is there twice.
    """
    found: dict[str, list[str]] = {}
    for part in messages:
        if part["parameter"] in found:
            raise ValueError(f"slot {part['parameter']} is there twice")
        found[part["parameter"]] = part.get("arguments", [])
    return found


def _attribute(program: Program, message: wire.Message) -> Any:
    kind = AttrType(message["type"])
    field = FIELDS[kind]
    value = message.get(field, []) if kind.name.endswith("S") else message[field]
    if kind == AttrType.FLOAT:
        return _shortest(value)
    if kind == AttrType.FLOATS:
        return [_shortest(number) for number in value]
    if kind == AttrType.BLOCK:
        return _block(program, value)
    if kind == AttrType.BLOCKS:
        return [_block(program, index) for index in value]
    return value


def _block(program: Program, index: int) -> Block:
    if not 0 <= index < program.num_blocks:
        raise ValueError(f"there is no block {index}")
    return program.block(index)


def _shortest(value: float) -> float:
    """The shortest decimal that is this float32: 0.1, as the user wrote it."""
    return float(str(np.float32(value)))


def _user_line(stack: list[str]) -> CallSite | None:
    """The innermost line outside Paddle itself."""
    frames = [match for text in stack for match in _FRAME.finditer(text)]
    own = [frame for frame in frames if "paddle/fluid/" not in frame[1]]
    return CallSite(own[-1][1], int(own[-1][2]), own[-1][3]) if own else None


def _find_parameters(program: Program) -> None:
    block = program.global_block()
    trained = {name for op in block.ops for name in op.role_var[::2]}
    written = {name for op in block.ops for name in op.output_arg_names}
    forward = {
        name
        for op in block.ops
        if not op.role & (roles.BACKWARD | roles.OPTIMIZE | roles.LR_SCHED)
        for name in op.input_arg_names
    }
    statistics = {
        name
        for op in block.ops
        if (definition := opdef.find(op.type)) is not None
        for slot in definition.statistics
        for name in op.inputs.get(slot, [])
    }
    for name, var in list(block.vars.items()):
        fixed = name in forward and (name not in written or name in statistics)
        known = var.shape and min(var.shape) >= 0
        if var.persistable and known and (name in trained or fixed):
            block.vars[name] = _parameter(var, trainable=name in trained)


def _parameter(var: Variable, trainable: bool) -> Parameter:
    made = Parameter(var.block, var.shape, var.dtype, var.type, trainable=trainable, name=var.name)
    made.lod_level, made.op, made.need_check_feed = var.lod_level, var.op, var.need_check_feed
    return made


def _find_data(program: Program) -> None:
    block = program.global_block()
    written = {
        name
        for b in program.blocks
        for op in b.ops
        if op.type != "feed"
        for name in op.output_arg_names
    }
    read = {name for op in block.ops for name in op.input_arg_names}
    for name, var in block.vars.items():
        dense = var.type == VarType.LOD_TENSOR and not var.persistable
        var.is_data = var.need_check_feed or (dense and name in read - written)
