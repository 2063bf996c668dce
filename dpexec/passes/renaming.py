"""An operator that reads other variables."""

from __future__ import annotations

from collections.abc import Mapping

from dpexec.ir.operator import Operator

__all__ = ["renamed"]


def renamed(op: Operator, names: Mapping[str, str]) -> Operator:
    """The operator with some of its inputs renamed; itself if it reads none of them."""
    if not names or names.keys().isdisjoint(op.input_arg_names):
        return op
    inputs = {slot: [names.get(name, name) for name in old] for slot, old in op.inputs.items()}
    return Operator(op.block, op.type, inputs, op.outputs, op.attrs, op.callsite, False)
