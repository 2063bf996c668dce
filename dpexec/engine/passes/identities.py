"""``remove_identities``: operators that only copy a value are removed."""

from __future__ import annotations

from dpexec.engine.graph.operators import Operators, Uses, pure
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.renaming import read_instead

__all__ = ["RemoveIdentities"]


class RemoveIdentities:
    """Let readers of a copy read the original.

    Copies are results of operators that declare ``copies``: ``assign``, ``scale`` by 1 without
    bias, ``cast`` to the same data type and ``reshape2`` to the same shape. The original must keep
    its value as long as the copy is read.
    """

    name = "remove_identities"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        uses = operators.uses()

        def original(position: int, current: Operator) -> dict[str, str]:
            if not _is_identity(uses.ops[position]) or not _removable(uses, position):
                return {}
            return {current.outputs["Out"][0]: current.inputs["X"][0]}

        return read_instead(operators, original)


def _removable(uses: Uses, position: int) -> bool:
    """Whether readers of the copy may read the original."""
    op = uses.ops[position]
    (source,), outputs = op.inputs["X"], op.output_arg_names
    readers = [reader for name in outputs for reader in uses.readers[name]]
    others = any(uses.readers[name] for name in outputs[1:])
    steady = uses.same([source], position, max(readers, default=position))
    return all(map(uses.temporary, outputs)) and not others and steady and bool(readers)


def _is_identity(op: Operator) -> bool:
    copies = op.definition.copies
    if not copies or not pure(op):
        return False
    if [slot for slot, names in op.inputs.items() if names] != ["X"]:
        return False
    found = op._variables([op.inputs["X"][0], op.outputs["Out"][0]])
    if len({(var.dtype, var.type, var.lod_level) for var in found.values()}) > 1:
        return False
    return copies is True or copies(op)
