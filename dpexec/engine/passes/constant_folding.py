"""``constant_folding``: operators on constants are evaluated when the program is compiled."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import as_var_type
from dpexec.engine.graph.operators import Operators, Uses, pure
from dpexec.engine.ir.operator import Operator

__all__ = ["ConstantFolding"]

_LARGEST = 1 << 16
"""The largest constant, in elements, that is evaluated at compile time."""


class ConstantFolding:
    """Replace operators whose inputs all come from ``fill_constant`` by a ``fill_constant``.

    Only operators that declare ``folds`` (sums, products, ``scale``, ``cast``) are replaced: their
    results have the same bits on every device.
    """

    name = "constant_folding"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        uses = operators.uses()
        values: dict[str, Any] = {}
        changes: dict[Operator, Operator | None] = {}
        folded: set[Operator] = set()
        for op in uses.ops:
            made = _computed(uses, op, values)
            if made is None:
                continue
            (name,) = op.output_arg_names
            values[name] = made
            if op.type != "fill_constant":
                changes[op] = _constant(op, made)
                folded.add(op)
        for position, op in reversed(list(enumerate(uses.ops))):
            names = op.output_arg_names
            if names and values.keys() >= set(names) and _unread(uses, position, folded):
                changes[op] = None
        return operators.replace(changes)


def _computed(uses: Uses, op: Operator, values: dict[str, Any]) -> Any:
    """The result of an operator on constants, if all its elements are equal."""
    names = op.output_arg_names
    if not pure(op) or len(names) != 1 or not uses.temporary(names[0]):
        return None
    inputs = op.input_arg_names
    if op.type == "fill_constant":
        shape = op.attrs["shape"]
        if inputs or min(shape, default=0) < 0 or math.prod(shape) > _LARGEST:
            return None
    elif not op.definition.folds or not inputs or not values.keys() >= set(inputs):
        return None
    definition = op.definition
    arguments: list[Any] = []
    for slot in definition.inputs:
        found = [values[name] for name in op.inputs.get(slot.name, [])]
        arguments.append(found if slot.many else found[0] if found else None)
    with np.errstate(all="ignore"):
        made = definition.kernel(np, *arguments, **definition.kernel_attrs(op.attrs))
    return made if _is_one_number(made) else None


def _is_one_number(array: Any) -> bool:
    first = array.reshape(-1)[:1]
    return bool(array.size and np.isfinite(first).all() and (array == first).all()) and bool(
        array.dtype.kind != "f" or first[0] or not np.signbit(array).any()
    )


def _constant(op: Operator, value: Any) -> Operator:
    number = value.reshape(-1)[0].item()
    attrs = {
        **op.origin_attrs(),
        "shape": list(value.shape),
        "dtype": as_var_type(value.dtype),
        "value": float(number),
        "str_value": repr(number) if value.dtype.kind in "iu" else "",
    }
    outputs = {"Out": op.output_arg_names}
    return Operator(op.block, "fill_constant", {}, outputs, attrs, op.callsite)


def _unread(uses: Uses, position: int, folded: Iterable[Operator]) -> bool:
    """Whether the operator's results have readers, and all of these were folded."""
    readers = [r for name in uses.ops[position].output_arg_names for r in uses.readers[name]]
    return bool(readers) and all(uses.ops[reader] in folded for reader in readers)
