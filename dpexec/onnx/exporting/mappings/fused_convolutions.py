"""Convolutions that passes over models for GPUs put together out of several operators."""

from __future__ import annotations

import itertools

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.activations import activated
from dpexec.onnx.exporting.mappings.conv2d import crop_or_pad, pads_of


def _activated(c: Call, x: Value) -> Value:
    kind = c.attr("activation") or "identity"
    return activated(c, kind, x, "Input")


@exports("conv2d_fusion")
def conv2d_fusion(c: Call) -> None:
    """``Conv``, a sum, an activation; parts of the channels."""
    g, kernel = c.g, c.shape("Filter")[2:]
    x, pads = crop_or_pad(c, c["Input"], pads_of(c, "Input", kernel))
    same = c.attr("padding_algorithm") == "SAME"
    made = g.Conv(
        x, c["Filter"], g.reshape(c["Bias"], -1),
        strides=list(c.attr("strides")), pads=pads, group=c.attr("groups") or 1,
        dilations=[1] * len(kernel) if same else list(c.attr("dilations") or [1] * len(kernel)),
        kernel_shape=list(kernel) if min(kernel) > 0 else None,
    )  # fmt: skip
    made = made if c.get("ResidualData") is None else g.Add(made, c["ResidualData"])
    made = _activated(c, made)
    c.set("Output", made)
    sizes = list(c.attr("split_channels") or ())
    ends = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    c.set("Outputs", [g.Slice(made, [a], [b], [1]) for a, b in itertools.pairwise(ends)])


@exports("conv2d_inception_fusion")
def conv2d_inception_fusion(c: Call) -> None:
    """Four convolutions, of which the last two read channels of the one before them."""
    g, filters, biases = c.g, c.all("Filter"), c.all("Bias")
    shapes = [c.spec("Filter", k).shape for k in range(4)]

    def convolved(number: int, x: Value, pad: int = 0, group: int = 1) -> Value:
        bias = g.reshape(biases[number], -1)
        return _activated(c, g.Conv(x, filters[number], bias, pads=[pad] * 4, group=group))

    def divided(x: Value, channels: int) -> list[Value]:
        return [g.Slice(x, [a], [b], [1]) for a, b in ((0, channels), (channels, 2**31))]

    window = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1] * 4}
    if c.attr("pooling_type") == "max":
        pooled = g.MaxPool(c["Input"], **window)
    else:
        exclusive = c.attr("exclusive") in (None, True)
        pooled = g.AveragePool(c["Input"], count_include_pad=int(not exclusive), **window)
    first = convolved(0, pooled)
    second, read = divided(convolved(1, c["Input"]), shapes[1][0] - 2 * shapes[2][1])
    whole = convolved(2, read, 1, 2)
    third, read = divided(whole, shapes[2][0] - shapes[3][1])
    c.set("TempOutput", [pooled, whole])
    c.set("Output", g.Concat(first, second, third, convolved(3, read, 1), axis=1))
