"""``enable_addto``: contributions to a gradient are added up as soon as they are there."""

from __future__ import annotations

from collections.abc import Iterator

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.graph.operators import Operators, Uses
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator

__all__ = ["AddTo"]


class AddTo:
    """Add every further contribution to a gradient onto the first, right after it is computed.

    A ``sum`` of many keeps all contributions until the last one is there; now each goes as soon as
    it was added, and machine code adds it in place, into the memory of the first. Contributions
    are added in the same order, so the bits stay. Sums of two are in place anyway, and
    SelectedRows stay as they are.
    """

    name = "enable_addto"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        uses = operators.uses()
        changes: dict[Operator, list[Operator]] = {}
        for position, op in enumerate(uses.ops):
            if not _is_sum_of_gradients(uses, op, position):
                continue
            *early, (_, last) = _additions(uses, op)
            for after, addition in early:
                changes.setdefault(after, [after]).append(addition)
            changes[op] = [last]
        return operators.expand(changes)


def _is_sum_of_gradients(uses: Uses, op: Operator, position: int) -> bool:
    """Whether there are more than two dense contributions, each computed once and before."""
    names = op.input_arg_names
    if op.type != "sum" or not op.role & roles.BACKWARD or not 2 < len(names) == len({*names}):
        return False
    if any(len(uses.writers[name]) != 1 or uses.writers[name][0] >= position for name in names):
        return False
    found = op._variables(names)
    return len(found) == len(names) and all(
        var.type == VarType.LOD_TENSOR for var in found.values()
    )


def _additions(uses: Uses, op: Operator) -> Iterator[tuple[Operator, Operator]]:
    """Additions of two, and the operator that each comes after."""
    total, *others = op.input_arg_names
    position = uses.writers[total][0]
    attrs = {name: value for name, value in op.attrs.items() if name != roles.ROLE_VAR}
    for number, name in enumerate(others, 1):
        position = max(position, uses.writers[name][0])
        last = number == len(others)
        out = op.output_arg_names[0] if last else f"{op.output_arg_names[0]}@ADDTO_{number}"
        slots = {"X": [total, name]}, {"Out": [out]}
        made = op.attrs if last else attrs
        yield uses.ops[position], Operator(op.block, "sum", *slots, made, op.callsite, False)
        total = out
