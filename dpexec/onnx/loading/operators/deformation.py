"""``DeformConv``."""

from __future__ import annotations

from typing import Any

from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.convolutions import with_channels


@operator("DeformConv")
def deform_conv(node: Node) -> Any:
    """``deformable_conv``, or ``deformable_conv_v1`` without a mask."""
    x, weight = node.var(0), node.var(1)
    if len(weight.shape) != 4:
        node.fail("only images are supported")
    pads = node.attr("pads", [0, 0, 0, 0])
    offset, mask = node.var(2), node.optional(4)
    if list(pads[:2]) != list(pads[2:]):
        before, after = pads[:2], pads[2:]
        grown = [0, 0, 0, 0, before[0], after[0], before[1], after[1]]
        x, pads = node.add("pad", {"X": x}, paddings=grown), [0, 0]
    made = node.add(
        "deformable_conv_v1" if mask is None else "deformable_conv",
        {"Input": x, "Offset": offset, "Mask": mask, "Filter": weight},
        "Output",
        strides=list(node.attr("strides", [1, 1])),
        dilations=list(node.attr("dilations", [1, 1])),
        paddings=list(pads[:2]),
        groups=node.attr("group", 1),
        deformable_groups=node.attr("offset_group", 1),
    )
    return with_channels(node, made, node.optional(3))
