"""Attributes of operators as Paddle's ``framework.proto`` has them: their types and fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.core.dtypes import AttrType
from dpexec.errors import EnforceNotMet

if TYPE_CHECKING:
    from dpexec.ir.program import Program

__all__ = ["FIELDS", "attribute_type", "copied", "plain"]

FIELDS = {
    AttrType.INT: "i",
    AttrType.FLOAT: "f",
    AttrType.STRING: "s",
    AttrType.INTS: "ints",
    AttrType.FLOATS: "floats",
    AttrType.STRINGS: "strings",
    AttrType.BOOL: "b",
    AttrType.BOOLS: "bools",
    AttrType.BLOCK: "block_idx",
    AttrType.LONG: "l",
    AttrType.BLOCKS: "blocks_idx",
    AttrType.LONGS: "longs",
}
"""The field of a message that holds a value, by its type."""

_INT32 = range(-(2**31), 2**31)
_LONG_SHAPES = {"fill_constant", "uniform_random", "gaussian_random"}
_LISTS = {
    AttrType.FLOATS: "Scale_weights anchor_sizes aspect_ratios bbox_reg_weights fixed_ratios "
    "fixed_sizes fp32_values max_sizes min_sizes scale_y stride variance variances",
    AttrType.LONGS: "height_sections int64_values shifts",
    AttrType.STRINGS: "backward_skip_vars endpoints epmap ex_states functor_list grad_to_block_id "
    "op_callstack op_role_var prefetch_var_name_to_block_id recv_varnames send_varnames "
    "skip_eager_deletion_vars sparse_grad_to_param states table_names varnames",
}
_LISTS_BY_NAME = {name: kind for kind, names in _LISTS.items() for name in names.split()}
"""What Paddle's operators declare where lists are not INTS; none of them declares BOOLS."""

_LONG_NUMBERS = {"padding_idx", "min_row_size_to_use_multithread"}


def attribute_type(value: Any, name: str = "", op_type: str = "") -> AttrType:
    """The protobuf type of an attribute.

    Args:
        value: the attribute.
        name: its name, which decides about empty lists, and about floats that look like integers.
        op_type: its operator: some declare 64 bits for numbers that would fit into 32.

    Raises:
        EnforceNotMet: a program cannot hold such a value.
    """
    from dpexec.ir.block import Block

    if isinstance(value, (list, tuple)):
        long_shape = name == "shape" and op_type in _LONG_SHAPES
        declared = AttrType.LONGS if long_shape else _LISTS_BY_NAME.get(name, AttrType.INTS)
        if not value:
            return declared
        kinds = {attribute_type(item) for item in value}
        if kinds == {AttrType.BOOL}:
            return AttrType.INTS
        if declared == AttrType.FLOATS and kinds == {AttrType.INT}:
            return declared
        if name == "int64_values" or long_shape:
            kinds.add(AttrType.LONG)
        if len(kinds) > 1 and kinds <= {AttrType.INT, AttrType.LONG, AttrType.FLOAT}:
            kinds = {AttrType.FLOAT if AttrType.FLOAT in kinds else AttrType.LONG}
        if len(kinds) == 1:
            return AttrType[kinds.pop().name + "S"]
    elif isinstance(value, (bool, np.bool_)):
        return AttrType.BOOL
    elif isinstance(value, (int, np.integer)):
        short = int(value) in _INT32 and name not in _LONG_NUMBERS
        return AttrType.INT if short else AttrType.LONG
    elif isinstance(value, (float, np.floating)):
        return AttrType.FLOAT
    elif isinstance(value, str):
        return AttrType.STRING
    elif isinstance(value, Block):
        return AttrType.BLOCK
    raise EnforceNotMet(
        f"attribute {name or '?'} of {op_type or 'an operator'} cannot be {value!r}"
    )


def plain(value: Any, default: Any) -> Any:
    """An attribute as a program stores it: lists, Python's own numbers, floats where declared."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(default, float) and type(value) is int:
        return float(value)
    return value


def copied(value: Any, program: Program) -> Any:
    """A copy of an attribute; blocks become those of ``program``."""
    if isinstance(value, list):
        return [copied(item, program) for item in value]
    return program.blocks[value.idx] if hasattr(value, "parent_idx") else value
