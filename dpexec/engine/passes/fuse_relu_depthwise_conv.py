"""``fuse_relu_depthwise_conv``: a depthwise convolution applies the relu before it."""

from __future__ import annotations

from dpexec.engine.graph.operators import Operators, Uses
from dpexec.engine.ir.operator import Operator

__all__ = ["FuseReluDepthwiseConv"]

_FUSED = "fuse_relu_before_depthwise_conv"


class FuseReluDepthwiseConv:
    """Let ``depthwise_conv2d`` and its gradient apply the ``relu`` of their input themselves.

    Paddle has this pass on GPUs only. The kernel calls that of ``relu``, so the bits do not change.
    """

    name = "fuse_relu_depthwise_conv"

    def rewrite(self, operators: Operators) -> bool:
        """Rewrite ``operators``; tell whether anything changed."""
        uses = operators.uses()
        changes: dict[Operator, Operator | None] = {}
        for position, op in enumerate(uses.ops):
            if op.type == "relu":
                changes.update(_without(uses, position))
        return operators.replace(changes)


def _without(uses: Uses, position: int) -> dict[Operator, Operator | None]:
    """The replacements for a relu and its readers; none if other operators read it, too."""
    relu = uses.ops[position]
    (x,), (out,) = relu.inputs["X"], relu.outputs["Out"]
    readers = uses.readers[out]
    found = {uses.ops[reader].type: reader for reader in readers}
    conv, conv_grad = found.get("depthwise_conv2d"), found.get("depthwise_conv2d_grad")
    relu_grad = found.get("relu_grad")
    known = {"depthwise_conv2d", "depthwise_conv2d_grad", "relu_grad"}
    if conv is None or not found.keys() <= known or len(found) < len(readers):
        return {}
    if not uses.temporary(out) or not uses.same([x], position, max(readers)):
        return {}
    changes: dict[Operator, Operator | None] = {relu: None}
    changes[uses.ops[conv]] = _taking(uses.ops[conv], x, {})
    if conv_grad is not None:
        flow: dict[str, list[str]] = {}
        made = uses.ops[conv_grad].outputs.get("Input@GRAD", [])
        if relu_grad is not None:
            if len(made) != 1 or uses.only_reader(made[0]) != relu_grad:
                return {}
            flow = {"Input@GRAD": uses.ops[relu_grad].outputs["X@GRAD"]}
            if not all(map(uses.temporary, flow["Input@GRAD"])):
                return {}
            changes[uses.ops[relu_grad]] = None
        changes[uses.ops[conv_grad]] = _taking(uses.ops[conv_grad], x, flow)
    return {} if relu_grad is not None and conv_grad is None else changes


def _taking(conv: Operator, image: str, flow: dict[str, list[str]]) -> Operator:
    """The convolution operator, reading the relu's input."""
    inputs, outputs = {**conv.inputs, "Input": [image]}, {**conv.outputs, **flow}
    attrs = {**conv.attrs, _FUSED: True}
    return Operator(conv.block, conv.type, inputs, outputs, attrs, conv.callsite, False)
