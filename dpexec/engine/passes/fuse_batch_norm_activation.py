"""``fuse_bn_act_ops``: batch normalization and its activation become one operator."""

from __future__ import annotations

from dpexec.engine.graph.operators import Operators
from dpexec.engine.ir.operator import Operator
from dpexec.engine.passes.pairs import fused, pairs

__all__ = ["FuseBatchNormActivation"]


class FuseBatchNormActivation:
    """Fuse ``relu`` with a ``batch_norm`` that nothing else reads; fuse their gradients, too.

    Paddle has this pass on GPUs only. The fused operators call the kernels of their parts, so the
    bits do not change.
    """

    name = "fuse_bn_act_ops"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        uses = operators.uses()
        changes: dict[Operator, Operator | None] = {}
        for norm, act in pairs(uses, "batch_norm", "Y", ("relu",)):
            if not norm.inputs.get("MomentumTensor"):
                changes[norm], changes[act] = _forward(norm, act), None
        for act, norm in pairs(uses, "relu_grad", "X@GRAD", ("batch_norm_grad",)):
            if not norm.inputs.get("Mean"):  # of the batch, not moving statistics
                changes[act], changes[norm] = None, _backward(act, norm)
        return operators.replace(changes)


def _forward(norm: Operator, act: Operator) -> Operator:
    inputs = {slot: names for slot, names in norm.inputs.items() if slot != "MomentumTensor"}
    outputs = {**norm.outputs, "Y": act.outputs["Out"]}
    return fused(norm, act, "fused_batch_norm_act", inputs, outputs, _attrs(norm, act.type))


def _backward(act: Operator, norm: Operator) -> Operator:
    slots = ("X", "Scale", "Bias", "SavedMean", "SavedVariance")
    inputs = {slot: norm.inputs[slot] for slot in slots}
    inputs |= {"Y": act.inputs["Out"], "Y@GRAD": act.inputs["Out@GRAD"]}
    attrs = _attrs(norm, act.type.removesuffix("_grad"))
    return fused(norm, act, "fused_batch_norm_act_grad", inputs, norm.outputs, attrs)


def _attrs(norm: Operator, activation: str) -> dict[str, object]:
    return {**norm.plain_attrs(), "act_type": activation}
