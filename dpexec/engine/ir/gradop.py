"""Gradient operators: what their makers see and return, and how slots are filled by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpexec.engine.core.lod import LOD_SUFFIX
from dpexec.engine.ir.roles import GRAD_SUFFIX

if TYPE_CHECKING:
    from dpexec.engine.ir.operator import Operator

__all__ = ["GradContext", "GradOp", "default_grad_op", "double_grad_op"]


@dataclass(frozen=True, slots=True)
class GradOp:
    """An operator that the backward pass is to append."""

    type: str
    inputs: Mapping[str, list[str]]
    outputs: Mapping[str, list[str]]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GradContext:
    """What a gradient maker sees of the forward operator.

    Args:
        op: the forward operator.
        output_grads: per output slot the names of the gradients that flow in (``""`` for none).
        input_grads: per input slot the names of the gradients to make (``""`` for not wanted).
        no_grad: names of variables at which gradients stop.
        flowing: gradients that something contributed to so far.
    """

    op: Operator
    output_grads: Mapping[str, list[str]]
    input_grads: Mapping[str, list[str]]
    no_grad: Set[str] = frozenset()
    flowing: Set[str] = frozenset()

    def offsets(self, slot: str, owner: str) -> dict[str, list[str]]:
        """A slot for the offsets of sequences of the gradient operator, filled for samples.

        In programs of users it stays away until they are compiled
        (:mod:`dpexec.engine.graph.lods`).

        Args:
            slot: of the gradient operator, ``X@LOD``.
            owner: the slot of the forward operator that has these offsets.
        """
        known = {**self.op.inputs, **self.op.outputs}
        names = known.get(owner + LOD_SUFFIX, [])
        return {slot: list(names)} if names else {}


def default_grad_op(context: GradContext, slots: Sequence[str], outputs: Sequence[str]) -> GradOp:
    """``<type>_grad`` with ``slots`` filled from the forward op and its output gradients.

    Offsets of sequences come when the program is compiled (:mod:`dpexec.engine.graph.lods`).
    """
    forward = context.op
    inputs: dict[str, list[str]] = {}
    for slot in slots:
        owner = slot.removesuffix(LOD_SUFFIX).removesuffix(GRAD_SUFFIX)
        if slot.endswith(LOD_SUFFIX):
            inputs |= context.offsets(slot, owner)
        elif slot.endswith(GRAD_SUFFIX):
            inputs[slot] = list(context.output_grads.get(owner, []))
        else:
            given = forward.inputs if slot in forward.inputs else forward.outputs
            inputs[slot] = list(given.get(slot, []))
    made = {
        slot: list(context.input_grads.get(slot.removesuffix(GRAD_SUFFIX), [])) for slot in outputs
    }
    return GradOp(forward.type + "_grad", inputs, made, forward.plain_attrs())


def double_grad_op(context: GradContext, slots: Sequence[str], outputs: Sequence[str]) -> GradOp:
    """The gradient of a gradient operator, whose slots are named after the forward operator's.

    Args:
        context: the gradient operator, and the gradients of its inputs and outputs.
        slots: ``DDX`` is what flows into the gradient of X, ``DX`` that gradient, which the
            operator reads or writes; others are its inputs and outputs.
        outputs: ``DDX`` flows back into the gradient of X that the operator reads; ``DX`` and
            ``X@GRAD`` into X itself.
    """
    gradient = context.op
    known = {**gradient.inputs, **gradient.outputs}

    def read(slot: str) -> list[str]:
        if slot.startswith("DD"):
            return list(context.output_grads.get(slot[2:] + GRAD_SUFFIX, []))
        return list(known.get(slot[1:] + GRAD_SUFFIX if slot.startswith("D") else slot, []))

    def made(slot: str) -> list[str]:
        if slot.startswith("DD"):
            return list(context.input_grads.get(slot[2:] + GRAD_SUFFIX, []))
        base = slot[1:] if slot.startswith("D") else slot.removesuffix(GRAD_SUFFIX)
        return list(context.input_grads.get(base, []))

    return GradOp(
        gradient.type + "_grad",
        {slot: read(slot) for slot in slots},
        {slot: made(slot) for slot in outputs},
        gradient.plain_attrs(),
    )
