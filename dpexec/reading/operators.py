"""Operators of a program that create and use readers, as in Paddle."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.spec import Spec
from dpexec.engine.ir.variable import Variable

__all__ = ["append_read", "create_double_buffer", "create_reader", "declare_reader"]


def declare_reader(block: Block, name: str, fields: Sequence[Spec]) -> Variable:
    """Declare the variable that represents a reader in a program."""
    return block.create_var(
        type=VarType.READER, name=name, persistable=True, stop_gradient=True, fields=fields
    )


def create_reader(
    block: Block, queue: str, name: str, variables: Sequence[Variable | Spec]
) -> Variable:
    """Append the operator that creates a reader, with the fields' types taken from variables."""
    fields = [Spec(v.shape, v.dtype, lod_level=v.lod_level) for v in variables]
    reader = declare_reader(block, name, fields)
    attrs = {
        "shape_concat": [dim for field in fields for dim in field.shape],
        "ranks": [field.rank for field in fields],
        "lod_levels": [field.lod_level for field in fields],
        "dtypes": [int(field.dtype) for field in fields],
        "need_check_feed": [int(getattr(v, "need_check_feed", False)) for v in variables],
    }
    block.append_op("create_py_reader", {"blocking_queue": [queue]}, {"Out": [reader]}, attrs)
    return reader


def create_double_buffer(reader: Variable, name: str, place: str = "AUTO") -> Variable:
    """Append the operator that makes a reader prefetch to a device."""
    made = declare_reader(reader.block, name, reader.fields)
    reader.block.append_op(
        "create_double_buffer_reader",
        {"UnderlyingReader": [reader]},
        {"Out": [made]},
        {"place": place},
    )
    return made


def append_read(reader: Variable, variables: Sequence[Variable], drop_last: bool) -> None:
    """Append the operator that reads the next batch."""
    outputs = {"Out": list(variables)}
    reader.block.append_op("read", {"Reader": [reader]}, outputs, {"drop_last": drop_last})
