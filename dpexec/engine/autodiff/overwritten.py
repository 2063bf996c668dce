"""Values that a gradient operator reads, although the program overwrites their variable before.

``s = a * a; assign(a + 1, a)``: the gradient of the product needs the first ``a``. A copy is made
in front of the operator that overwrites it. Paddle reads the new value, and its gradient is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator

__all__ = ["Overwritten"]


class Overwritten:
    """The operators of the forward pass that overwrite variables.

    Args:
        block: the block of the operators. In others than the global one nothing is kept: loops
            keep the values of each round.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._places: dict[int, int] = {}
        self._writers: dict[str, list[Operator]] = {}
        for place, op in enumerate(() if block.idx else block.ops):
            self._places[id(op)] = place
            if op.role & ~roles.LOSS == roles.FORWARD:
                for name in op.output_arg_names:
                    self._writers.setdefault(name, []).append(op)

    def keep(self, op: Operator, inputs: Mapping[str, list[str]]) -> None:
        """Let a gradient operator read copies of what is overwritten.

        Args:
            op: the operator whose gradient it computes.
            inputs: names of what it reads, by slot; changed in place.
        """
        if id(op) not in self._places or "sub_block" in op.attrs:
            return
        for slot, names in inputs.items():
            names[:] = [self._kept(op, slot, name) for name in names]

    def _kept(self, op: Operator, slot: str, name: str) -> str:
        """The variable that has the value which the operator read or wrote."""
        place = self._places[id(op)]
        if name not in op.inputs.get(slot, ()):  # what it wrote itself is overwritten after it
            place += 1
            if name not in op.outputs.get(slot, ()):
                return name
        writers = self._writers.get(name, [])
        later = [writer for writer in writers if self._places[id(writer)] >= place]
        var = self._block._find_var_recursive(name)
        if not later or var is None or var.persistable or var.type != VarType.LOD_TENSOR:
            return name
        if any(writer.definition.make_undo for writer in later):  # counted down again, in time
            return name
        kept = f"{name}@BEFORE@{writers.index(later[0])}"
        if not self._block.has_var(kept):
            self._block.create_var(name=kept, shape=var.shape, dtype=var.dtype, stop_gradient=True)
            self._block._insert_op(later[0].idx, "assign", {"X": name}, {"Out": kept})
        return kept
