"""Pairs of operators that can be fused: only the second one reads the first one's result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dpexec.engine.graph.operators import Uses
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator

__all__ = ["fused", "pairs"]


def pairs(
    uses: Uses, first: str, slot: str, second: Collection[str], *, at_second: bool = False
) -> Iterator[tuple[Operator, Operator]]:
    """Find pairs of operators that can be fused.

    Args:
        uses: the operators' reads and writes.
        first: type of the first operator.
        slot: the output slot of the first operator that only the second one reads.
        second: types of the second operator.
        at_second: whether the fused operator runs at the second position; False: either position
            must be possible.

    Yields:
        Both operators. Their other inputs have the same values at both positions, and no operator
        between them touches their other outputs.
    """
    for position, op in enumerate(uses.ops):
        if op.type != first or len(op.outputs.get(slot, [])) != 1:
            continue
        reader = uses.only_reader(op.outputs[slot][0])
        if reader is None or uses.ops[reader].type not in second:
            continue
        other = uses.ops[reader]
        if roles.role_name(op.role) == roles.role_name(other.role) and _movable(
            uses, position, reader, at_second
        ):
            yield op, other


def _movable(uses: Uses, first: int, second: int, at_second: bool) -> bool:
    """Whether both operators may run at either position, or with ``at_second`` at the second."""
    one, two = uses.ops[first], uses.ops[second]
    besides = [name for name in two.input_arg_names if name not in one.output_arg_names]
    if not uses.same([*one.input_arg_names, *([] if at_second else besides)], first + 1, second):
        return False
    written = [*one.output_arg_names, *two.output_arg_names]
    return not any(
        first < position < second
        for name in written
        for position in (*uses.readers[name], *uses.writers[name])
    )


def fused(
    first: Operator,
    second: Operator,
    type: str,
    inputs: Mapping[str, list[str]],
    outputs: Mapping[str, list[str]],
    attrs: Mapping[str, Any],
) -> Operator:
    """An operator that does the work of both, with the role of the first."""
    role_var = [*first.role_var, *second.role_var]
    kept = {**attrs, **first.origin_attrs(), roles.ROLE_VAR: role_var}
    return Operator(first.block, type, inputs, outputs, kept, first.callsite)
