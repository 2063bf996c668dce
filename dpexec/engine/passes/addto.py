"""``enable_addto``: contributions to a gradient are added up as soon as they are computed."""

from __future__ import annotations

from collections.abc import Iterator

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.graph.operators import Operators, Uses
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator

__all__ = ["AddTo"]


class AddTo:
    """Replace the ``sum`` of many contributions to a gradient by additions of one after another.

    A ``sum`` keeps all contributions in memory until the last one is computed. Now each is freed as
    soon as it was added; machine code adds in place, into the memory of the first. The order of
    additions is the same, so the result has the same bits. Sums of two are in place anyway, and
    sums of SelectedRows are not changed.
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
    """Whether it sums more than two dense contributions, each computed once and earlier."""
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
    """Additions of two values, each with the operator after which it is inserted."""
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
