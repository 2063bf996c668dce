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


@operator("GridSample")
def grid_sample(node: Node) -> Any:
    """Linear between pixels, with 0 outside and corners aligned: what fluid has."""
    mode = node.attr("mode", "bilinear" if node.version < 20 else "linear")
    given = (mode, node.attr("padding_mode", "zeros"), node.attr("align_corners", 0))
    if given not in (("bilinear", "zeros", 1), ("linear", "zeros", 1)):
        node.fail(
            f"mode {given[0]}, padding {given[1]}, align_corners {given[2]} is not supported, "
            "only linear, zeros, 1"
        )
    inputs = {"X": node.var(0), "Grid": node.var(1)}
    return node.add("grid_sampler", inputs, "Output")
