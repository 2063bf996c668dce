"""Attributes of operators as Paddle's ``framework.proto`` has them: their types and fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.errors import EnforceNotMet

__all__ = ["FIELDS", "attribute_type"]

FIELDS = {
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
"""The field of a message that holds a value, by its type; in the order of the enum of types."""

_INT32 = range(-(2**31), 2**31)
_LONG_SHAPES = {"fill_constant", "uniform_random", "gaussian_random"}
_LISTS = {
    "FLOATS": "Scale_weights anchor_sizes aspect_ratios bbox_reg_weights fixed_ratios fixed_sizes "
    "fp32_values max_sizes min_sizes scale_y stride variance variances",
    "LONGS": "height_sections int64_values shifts",
    "STRINGS": "backward_skip_vars endpoints epmap ex_states functor_list grad_to_block_id "
    "op_callstack op_role_var prefetch_var_name_to_block_id recv_varnames send_varnames "
    "skip_eager_deletion_vars sparse_grad_to_param states table_names varnames",
}
_LISTS_BY_NAME = {name: kind for kind, names in _LISTS.items() for name in names.split()}
"""What Paddle's operators declare where lists are not INTS; none of them declares BOOLEANS."""

_LONG_NUMBERS = {"padding_idx", "min_row_size_to_use_multithread"}


def attribute_type(value: Any, name: str = "", op_type: str = "") -> str:
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
        declared = "LONGS" if long_shape else _LISTS_BY_NAME.get(name, "INTS")
        if not value:
            return declared
        kinds = {attribute_type(item) for item in value}
        if kinds == {"BOOLEAN"}:
            return "INTS"
        if declared == "FLOATS" and kinds == {"INT"}:
            return declared
        if name == "int64_values" or long_shape:
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
