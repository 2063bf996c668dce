"""Attributes of operators as Paddle's ``framework.proto`` has them: their types and fields.

When Paddle reads a program with a misspelt attribute name, it silently keeps the attribute and uses
the default of the one that was meant. Unknown attributes are not errors in general: quantization
and libraries store notes of their own on operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.core.dtypes import AttrType
from dpexec.engine.core.errors import EnforceNotMet, similar
from dpexec.engine.ir import opdef
from dpexec.engine.ir.callsite import warn

if TYPE_CHECKING:
    from dpexec.engine.ir.operator import Operator
    from dpexec.engine.ir.program import Program

__all__ = ["FIELDS", "attribute_type", "copied", "stored", "warn_of_unknown_attributes"]

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
"""The message field that holds an attribute's value, by attribute type."""

_INT32 = range(-(2**31), 2**31)
_LISTS = {
    AttrType.BLOCKS: "optimize_blocks",
    AttrType.FLOATS: "Scale_weights anchor_sizes aspect_ratios bbox_reg_weights fixed_ratios "
    "fixed_sizes fp32_values max_sizes min_sizes scale_y sparsity stride value variance variances",
    AttrType.LONGS: "height_sections int64_values shifts",
    AttrType.STRINGS: "backward_skip_vars endpoints epmap ex_states functor_list grad_to_block_id "
    "op_callstack op_role_var original_output_grad other_endpoints parts "
    "prefetch_var_name_to_block_id recv_varnames send_varnames skip_eager_deletion_vars "
    "sum_over_devices "
    "sparse_grad_to_param states table_names varnames",
}
_LISTS_BY_NAME = {name: kind for kind, names in _LISTS.items() for name in names.split()}
"""Attributes that Paddle declares as lists of another type than INTS; none is BOOLS."""

_LONG_NUMBERS = {
    *("padding_idx", "min_row_size_to_use_multithread", "mod_by", "num_rows", "num_columns"),
    *("min_average_window", "max_average_window", "out_val_if_empty"),
}


def attribute_type(value: Any, name: str = "", op_type: str = "") -> AttrType:
    """The protobuf type of an attribute.

    Args:
        value: the attribute.
        name: its name, which decides the type of empty lists and of floats that look like integers.
        op_type: its operator's type; some operators declare 64 bits for small integers, too.

    Raises:
        EnforceNotMet: a program cannot hold such a value.
    """
    from dpexec.engine.ir.block import Block

    if isinstance(value, (list, tuple)):
        definition = opdef.find(op_type)
        is_long = definition is not None and name in definition.longs
        declared = AttrType.LONGS if is_long else _LISTS_BY_NAME.get(name, AttrType.INTS)
        if not value:
            return declared
        kinds = {attribute_type(item) for item in value}
        if kinds == {AttrType.BOOL}:
            return AttrType.INTS
        if declared == AttrType.FLOATS and kinds == {AttrType.INT}:
            return declared
        if name == "int64_values" or is_long:
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


def stored(given: Mapping[str, Any], definition: opdef.OpDef, complete: bool) -> dict[str, Any]:
    """The attributes of an operator as a program stores them.

    Args:
        given: attributes by name; values are converted to the declared types where possible.
        definition: the operator's definition.
        complete: whether to add the attributes that are not given, with their defaults.

    Raises:
        TypeError: no attribute can hold such a value.
        EnforceNotMet: this attribute cannot hold it, or an attribute without default is missing.
    """
    defaults, required = definition.attrs, definition.required
    missing = [name for name in required if complete and given.get(name) is None]
    if missing:
        raise EnforceNotMet(f"attribute {missing[0]} is required")
    made = {
        name: _stored(value, defaults.get(name), name, definition.type, required.get(name))
        for name, value in given.items()
    }
    return {**defaults, **made} if complete else made


def _stored(
    value: Any, default: Any, name: str, op_type: str, declared: AttrType | None = None
) -> Any:
    """Convert an attribute to the type that the operator declares.

    Numbers become floats or truth values where those are declared, as in Paddle. A float is not an
    integer even if it is whole, and a single value is not a list.

    Args:
        value: the given value; NumPy scalars count as Python numbers, arrays as lists.
        default: the attribute's default, which shows its type; None if it has none.
        name: of the attribute.
        op_type: type of the operator.
        declared: type of an attribute that has no default, if it is known.

    Raises:
        TypeError: no attribute can hold such a value.
        EnforceNotMet: this attribute cannot hold it.
    """
    if type(value) is type(default) and (
        type(value) in _SIMPLE or (type(value) is int and value in _INT32)
    ):
        return value
    if isinstance(value, np.ndarray) and value.size == 1 and not isinstance(default, list | tuple):
        value = value.item()
    try:
        value = _python_value(value)
    except TypeError as error:
        raise TypeError(f"attribute {name} of operator {op_type}: {error}") from None
    if default is not None:
        declared = attribute_type(default, name, op_type)
    if declared is None:
        attribute_type(value, name, op_type)
        return value
    made = _converted(value, declared.name, name)
    if made is None:
        shown = f"{value!r:.80}"
        raise EnforceNotMet(f"attribute {name} must be {_SHOWN[declared.name]}, but is {shown}")
    return made


_SIMPLE = (bool, float, str)
_INT64 = range(-(2**63), 2**63)
_SHOWN = {
    "INT": "an integer of 32 bits",
    "LONG": "an integer",
    "FLOAT": "a number",
    "BOOL": "a bool",
    "STRING": "a string",
    "INTS": "a list of integers",
    "LONGS": "a list of integers",
    "FLOATS": "a list of numbers",
    "STRINGS": "a list of strings",
    "BLOCK": "a block",
    "BLOCKS": "a list of blocks",
}


def _python_value(value: Any) -> Any:
    """Numbers, strings and lists of Python for those of NumPy, tuples, ranges and bytes."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, (np.float32, np.float16)) and value.is_integer():
        return int(value)
    elif isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, (list, tuple, range)):
        return [_python_value(item) for item in value]
    if isinstance(value, (int, float, str)) or hasattr(value, "parent_idx"):
        return value
    shown = " ".join(repr(value).split())
    raise TypeError(f"it cannot be {type(value).__name__} ({shown:.60})")


def _converted(value: Any, declared: str, name: str) -> Any:
    """The value converted to a declared type; None if that is not possible."""
    if declared.endswith("S"):
        if not isinstance(value, list):
            return None
        made = [_converted(item, declared[:-1], name) for item in value]
        return None if any(item is None for item in made) else made
    if declared in ("INT", "LONG"):
        wide = declared == "LONG" or name in _LONG_NUMBERS
        if wide and isinstance(value, float) and value.is_integer():
            value = int(value)  # as Paddle does where it declares 64 bits
        whole = isinstance(value, int) and int(value) in (_INT64 if wide else _INT32)
        return int(value) if whole and type(value) is bool else value if whole else None
    if declared == "FLOAT":
        return float(value) if isinstance(value, (int, float)) else None
    if declared == "BOOL":
        return bool(value) if isinstance(value, (int, float)) else None
    if declared == "STRING":
        return value if isinstance(value, str) else None
    return value if hasattr(value, "parent_idx") else None


def copied(value: Any, program: Program) -> Any:
    """A copy of an attribute; blocks become those of ``program``."""
    if isinstance(value, list):
        return [copied(item, program) for item in value]
    return program.blocks[value.idx] if hasattr(value, "parent_idx") else value


_TOLD = 5


def _misspelt(op: Operator) -> Iterator[str]:
    """A hint for each unknown attribute whose name resembles a missing one."""
    declared = op.definition.attrs
    lacking = [name for name in declared if name not in op.attrs]
    for name in op.attrs if lacking else ():
        meant = "" if name in declared else similar(name, lacking)
        if meant:
            yield f"attribute {name!r}{meant}"


def warn_of_unknown_attributes(program: Program, source: str) -> None:
    """Warn once about all attributes that have no effect because their names are misspelt.

    Args:
        program: the program, as it was read.
        source: what it was read from; the warning begins with it.
    """
    told = [
        f"operator {op.type}, number {number} of block {block.idx}: {found}"
        for block in program.blocks
        for number, op in enumerate(block.ops)
        for found in _misspelt(op)
    ]
    if not told:
        return
    shown = "; ".join(told[:_TOLD])
    more = f"; and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    text = f"{source}: attributes that are unknown are ignored: {shown}{more}"
    warn(text.encode("utf-8", "replace").decode())
