"""Transposed convolutions of images and volumes."""

from __future__ import annotations

from dpexec.engine.ops._windows import has_channels_last, size_of
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.conv2d import back, first, pads_of
from dpexec.onnx.exporting.refusals import need


@exports(
    "conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose",
    without="output sizes and SAME over open sizes; what MKL-DNN fuses",
)  # fmt: skip
def transposed_convolution(c: Call) -> None:
    """``ConvTranspose``; a size of the output that is wished is padding at the end."""
    need(not c.attr("fuse_activation"), f"it has the fused {c.attr('fuse_activation')}")
    rank, last = c.rank("Input"), has_channels_last(c.attr("data_format"))
    kernel, strides = c.shape("Filter")[2:], list(c.attr("strides"))
    same = c.attr("padding_algorithm") == "SAME"
    dilations = [1] * len(kernel) if same else list(c.attr("dilations"))
    pads = pads_of(c, "Input", kernel, False)
    wished, more = list(c.attr("output_size") or []), [0] * len(kernel)
    if wished:
        size = size_of(c.shape("Input"), c.attr("data_format"))
        need(min(size) > 0, f"its output has a size, but its input an open one: {c.spec('Input')}")
        made = zip(size, strides, dilations, kernel, pads, wished, strict=True)
        more = [w - ((n - 1) * s + d * (k - 1) + 1 - sum(p)) for n, s, d, k, p, w in made]
    need(min(map(min, pads)) >= 0, "its padding is negative")
    ends = [after for _, after in pads]
    behind = any(m >= s for m, s in zip(more, strides, strict=True))  # more than ONNX allows
    bias = c.get("Bias")
    made = c.g.ConvTranspose(
        first(c, c["Input"], rank, last), c["Filter"], None if behind else bias,
        strides=strides, dilations=dilations, group=c.attr("groups"), kernel_shape=list(kernel),
        pads=[before for before, _ in pads] + ends,
        output_padding=more if any(more) and not behind else None,
    )  # fmt: skip
    if behind:
        made = c.g.Pad(made, [0] * (rank + 2) + more, c.number(0.0, "Input"))
        shape = [-1, *[1] * len(kernel)]
        made = made if bias is None else c.g.Add(made, c.g.reshape(bias, *shape))
    c.set("Output", back(c, made, rank, last))
