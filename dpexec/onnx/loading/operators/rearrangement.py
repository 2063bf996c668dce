"""``DepthToSpace``, ``SpaceToDepth``, ``ReverseSequence``."""

from __future__ import annotations

from typing import Any

from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node


@operator("DepthToSpace")
def depth_to_space(node: Node) -> Any:
    """Channels become rows and columns of blocks."""
    batch, channels, height, width = node.dims(0)
    size, x = node.attr("blocksize"), node.var(0)
    depth = channels // (size * size)
    if node.attr("mode", "DCR") == "CRD":
        return node.add("pixel_shuffle", {"X": x}, upscale_factor=size)
    made = node.reshape(x, [batch, size, size, depth, height, width], [batch])
    made = node.transpose(made, [0, 3, 4, 1, 5, 2])
    return node.reshape(made, [batch, depth, height * size, width * size], [batch])


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> Any:
    """Rows and columns of blocks become channels."""
    batch, channels, height, width = node.dims(0)
    size, x = node.attr("blocksize"), node.var(0)
    rows, columns = height // size, width // size
    made = node.reshape(x, [batch, channels, rows, size, columns, size], [batch])
    crd = node.attr("mode", "DCR") == "CRD"
    made = node.transpose(made, [0, 1, 3, 5, 2, 4] if crd else [0, 3, 5, 1, 2, 4])
    return node.reshape(made, [batch, channels * size * size, rows, columns], [batch])
