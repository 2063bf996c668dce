"""``common_subexpressions``: equal computations are done once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from dpexec.engine.graph.operators import Operators, Uses, pure
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.renaming import read_instead

__all__ = ["CommonSubexpressions"]


class CommonSubexpressions:
    """Replace an operator's results by those of an equal earlier operator.

    Two operators are equal if they have the same type, attributes and input values. Random
    operators, operators with side effects, and writers of persistable variables are not merged.
    Learning rate schedules, forward pass and backward pass are kept apart.
    """

    name = "common_subexpressions"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        uses = operators.uses()
        seen: dict[Hashable, int] = {}

        def earlier(position: int, current: Operator) -> dict[str, str]:
            results = current.output_arg_names
            if not pure(current) or not all(map(uses.temporary, results)):
                return {}
            first = seen.setdefault(_value(uses, current, position), position)
            equal = uses.ops[first].output_arg_names
            return {} if first == position else dict(zip(results, equal, strict=True))

        return read_instead(operators, earlier)


def _value(uses: Uses, op: Operator, position: int) -> Hashable:
    """A key of the computed value: equal operators have equal keys."""
    inputs = tuple(
        (slot, tuple((name, uses.version(name, position)) for name in names))
        for slot, names in sorted(op.inputs.items())
        if names
    )
    outputs = tuple((slot, len(names)) for slot, names in op.outputs.items() if names)
    return op.type, roles.role_name(op.role), inputs, outputs, tuple(_attrs(op))


def _attrs(op: Operator) -> Iterator[tuple[str, str]]:
    attrs = {**op.definition.attrs, **op.plain_attrs()}
    return ((name, repr(attrs[name])) for name in sorted(attrs))
