"""``fuse_elewise_add_act_ops``: an addition and its activation become one operator."""

from __future__ import annotations

from dpexec.engine.graph.operators import Operators
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.pairs import fused, pairs

__all__ = ["FuseAddActivation"]

_ACTIVATIONS = ("relu", "sigmoid", "tanh")


class FuseAddActivation:
    """Fuse ``relu``, ``sigmoid`` and ``tanh`` with the ``elementwise_add`` that they alone read.

    Their gradients are fused, too; Paddle fuses only the gradient of ``relu``. Paddle also fuses
    ``scale`` but loses its bias, so ``scale`` is not fused here. The fused operators compute the
    same as their parts, with machine code in one loop, so the bits do not change. A fully connected
    layer becomes a matrix product and one loop for bias and activation.
    """

    name = "fuse_elewise_add_act_ops"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        uses = operators.uses()
        changes: dict[Operator, Operator | None] = {}
        for add, act in pairs(uses, "elementwise_add", "Out", _ACTIVATIONS):
            changes[add], changes[act] = _forward(add, act), None
        for type in _ACTIVATIONS:
            for act, add in pairs(uses, f"{type}_grad", "X@GRAD", ("elementwise_add_grad",)):
                changes[act], changes[add] = None, _backward(act, add)
        return operators.replace(changes)


def _forward(add: Operator, act: Operator) -> Operator:
    attrs = {"functor_list": [act.type, add.type], "axis": add.attrs.get("axis", -1)}
    inputs = {"X": add.inputs["X"], "Y": add.inputs["Y"]}
    return fused(add, act, "fused_elemwise_activation", inputs, {"Out": act.outputs["Out"]}, attrs)


def _backward(act: Operator, add: Operator) -> Operator:
    slots = {"Out": act.inputs["Out"], "Out@GRAD": act.inputs["Out@GRAD"]}
    inputs = {"X": add.inputs["X"], "Y": add.inputs["Y"], **slots}
    attrs = {"functor_list": [act.type, add.type], "axis": add.attrs.get("axis", -1)}
    return fused(add, act, "fused_elemwise_activation_grad", inputs, add.outputs, attrs)
