"""Removes redundant operators and renames the inputs of their readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpexec.engine.graph.operators import Operators
from dpexec.engine.ir.operator import Operator

__all__ = ["read_instead"]


def read_instead(operators: Operators, found: Callable[[int, Operator], Mapping[str, str]]) -> bool:
    """Remove operators whose results other variables hold; tell whether there were any.

    Args:
        operators: the operators, changed in place.
        found: called with an operator's position and the operator with its inputs renamed so far.
            It maps each result to the variable to read instead, or returns an empty mapping to
            keep the operator.
    """
    names: dict[str, str] = {}
    changes: dict[Operator, Operator | None] = {}
    for position, op in enumerate(operators.ops):
        current = _renamed(op, names)
        if current is not op:
            changes[op] = current
        instead = found(position, current)
        if instead:
            names.update(instead)
            changes[op] = None
    return operators.replace(changes)


def _renamed(op: Operator, names: Mapping[str, str]) -> Operator:
    """The operator with some of its inputs renamed; itself if it reads none of them."""
    if not names or names.keys().isdisjoint(op.input_arg_names):
        return op
    inputs = {slot: [names.get(name, name) for name in old] for slot, old in op.inputs.items()}
    return Operator(op.block, op.type, inputs, op.outputs, op.attrs, op.callsite, False)
