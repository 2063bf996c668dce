"""``Conv`` and ``ConvTranspose`` of sequences, images and volumes; ``DeformConv``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

__all__ = ["conv_settings", "convolved", "explicit_pads", "with_channels"]


def explicit_pads(
    node: Node, sizes: Sequence[Any], kernel: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:  # fmt: skip
    """Padding before and after each axis: fluid's order, axis by axis.

    Args:
        node: the node; its ``auto_pad`` is looked at.
        sizes: of the images, without channels.
        kernel: sizes of the window.
        strides: of the window.
        dilations: of the window.
    """
    count, auto = len(kernel), node.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", "", "VALID"):
        pads = [0] * 2 * count if auto == "VALID" else node.attr("pads", [0] * 2 * count)
        return [pads[i + side * count] for i in range(count) for side in (0, 1)]
    made: list[int] = []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        if not isinstance(size, int):
            node.fail(f"auto_pad {auto} needs the sizes of images when the model is loaded")
        needed = (-(-size // stride) - 1) * stride + (width - 1) * dilation + 1 - size
        small, large = max(needed, 0) // 2, max(needed, 0) - max(needed, 0) // 2
        made += [small, large] if auto == "SAME_UPPER" else [large, small]
    return made


def with_channels(node: Node, made: Variable, bias: Variable | None) -> Variable:
    """A result with a number added to each channel."""
    if bias is None:
        return made
    return node.add("elementwise_add", {"X": made, "Y": bias}, axis=1)


def conv_settings(
    node: Node, x: Variable, weight: Variable, sizes: Sequence[Any]
) -> tuple[Variable, Variable, dict, bool]:
    """Images, filters and attributes; sequences become images of one row."""
    kernel = list(weight.shape[2:])
    count = len(kernel)
    strides = list(node.attr("strides", [1] * count))
    dilations = list(node.attr("dilations", [1] * count))
    pads = explicit_pads(node, sizes, kernel, strides, dilations)
    flat = count == 1
    if flat:
        x, weight = node.unsqueeze(x, [2]), node.unsqueeze(weight, [2])
        strides, dilations, pads = [1, *strides], [1, *dilations], [0, 0, *pads]
    if pads[::2] == pads[1::2]:
        pads = pads[::2]
    attrs = {
        "strides": strides,
        "dilations": dilations,
        "paddings": pads,
        "groups": node.attr("group", 1),
    }
    return x, weight, attrs, flat


@operator("Conv")
def conv(node: Node) -> Any:
    """With one filter for each channel it is ``depthwise_conv2d``."""
    made = convolved(node, node.var(0), node.var(1), node.dims(0)[2:])
    return with_channels(node, made, node.optional(2))


def convolved(node: Node, x: Variable, weight: Variable, sizes: Sequence[Any]) -> Variable:
    """The convolution that a node's attributes say.

    Args:
        node: the node.
        x: sequences, images or volumes.
        weight: filters.
        sizes: of ``x``, without samples and channels.
    """
    x, weight, attrs, flat = conv_settings(node, x, weight, sizes)
    if len(weight.shape) not in (4, 5):
        node.fail(f"filters have {len(weight.shape)} dimensions; 3 to 5 are supported")
    op_type = "conv2d" if len(weight.shape) == 4 else "conv3d"
    if op_type == "conv2d" and 1 < attrs["groups"] == x.shape[1]:
        op_type = "depthwise_conv2d"
    made = node.add(op_type, {"Input": x, "Filter": weight}, "Output", **attrs)
    return node.squeeze(made, [2]) if flat else made


@operator("ConvTranspose")
def conv_transpose(node: Node) -> Any:
    """The sizes of results follow from ``output_shape``, or from pads and ``output_padding``."""
    weight, sizes = node.var(1), node.dims(0)[2:]
    count = len(sizes)
    strides = list(node.attr("strides", [1] * count))
    dilations = list(node.attr("dilations", [1] * count))
    extra = list(node.attr("output_padding", [0] * count))
    reach = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    auto, wanted = node.attr("auto_pad", "NOTSET"), node.attr("output_shape")
    pads = list(node.attr("pads", [0] * 2 * count))
    if wanted or auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = [0] * 2 * count
        for i, size in enumerate(sizes):
            if not isinstance(size, int):
                node.fail("output_shape and auto_pad need the sizes of images")
            target = wanted[i] if wanted else size * strides[i]
            total = strides[i] * (size - 1) + extra[i] + reach[i] - target
            small, large = total // 2, total - total // 2
            pads[i], pads[count + i] = (small, large) if auto == "SAME_UPPER" else (large, small)
    # What is cut off behind is cut off afterwards, so that nothing depends on open sizes.
    made = _plain_transpose(node, weight, strides, dilations)
    for i in range(count):
        before, after = pads[i], pads[count + i] - extra[i]
        if after < 0 or before < 0:
            grown = [0] * 2 * len(made.shape)
            grown[2 * (i + 2)], grown[2 * (i + 2) + 1] = max(-before, 0), max(-after, 0)
            made = node.add("pad", {"X": made}, paddings=grown)
        if before > 0 or after > 0:
            made = node.slice(made, i + 2, max(before, 0), -after if after > 0 else 2**31 - 1)
    return with_channels(node, made, node.optional(2))


def _plain_transpose(
    node: Node, weight: Variable, strides: list[int], dilations: list[int]
) -> Variable:
    x, count = node.var(0), len(strides)
    if count == 1:
        x, weight = node.unsqueeze(x, [2]), node.unsqueeze(weight, [2])
        strides, dilations = [1, *strides], [1, *dilations]
    if count > 3:
        node.fail(f"images have {count} dimensions; 1 to 3 are supported")
    groups, attrs = node.attr("group", 1), {"strides": strides, "dilations": dilations}
    op_type = "conv3d_transpose" if count == 3 else "conv2d_transpose"
    attrs["paddings"] = [0] * len(strides)
    made = node.add(op_type, {"Input": x, "Filter": weight}, "Output", groups=groups, **attrs)
    return node.squeeze(made, [2]) if count == 1 else made


@operator("Col2Im")
def columns_to_image(node: Node) -> Any:
    """Adds windows at their places in the image: a transposed convolution."""
    image, block = node.integers(1, "image_shape"), node.integers(2, "block_shape")
    if image is None or block is None or len(image) != 2:
        node.fail("only images are supported")
    pads, (batch, _, _) = list(node.attr("pads", [0] * 4)), node.dims(0)
    strides, dilations = list(node.attr("strides", [1, 1])), list(node.attr("dilations", [1, 1]))
    reach = [(k - 1) * d + 1 for k, d in zip(block, dilations, strict=True)]
    windows = [(image[i] + pads[i] + pads[2 + i] - reach[i]) // strides[i] + 1 for i in range(2)]
    places = block[0] * block[1]
    x = node.reshape(node.var(0), [-1, places, *windows])
    filters = np.eye(places, dtype=to_numpy(x.dtype)).reshape(places, 1, *block)
    made = node.add(
        "conv2d_transpose", {"Input": x, "Filter": node.builder.constant(filters)}, "Output",
        strides=strides, dilations=dilations, paddings=[0, 0], groups=1,
    )  # fmt: skip
    for i in range(2):  # rows behind the last window stay 0
        size = (windows[i] - 1) * strides[i] + reach[i]
        end = pads[i] + image[i]
        if end > size:
            grown = [0] * 8
            grown[2 * (i + 2) + 1] = end - size
            made = node.add("pad", {"X": made}, paddings=grown)
        if pads[i] or end < size:
            made = node.slice(made, i + 2, pads[i], end)
    channels = node.value(0).shape[1] // places
    return node.reshape(made, [batch, channels, *image], [batch])


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
        im2col_step=1,  # with others Paddle itself is wrong, should it run the program
    )
    return with_channels(node, made, node.optional(3))
