"""Convolutions of images and volumes, also with channels last; deformable ones."""

from __future__ import annotations

from dpexec.engine.ops._windows import has_channels_last, padding, size_of
from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.activations import activated
from dpexec.onnx.exporting.refusals import need


def first(c: Call, value: Value, rank: int, last: bool) -> Value:
    """Images with the channels first."""
    return c.g.Transpose(value, perm=[0, rank - 1, *range(1, rank - 1)]) if last else value


def back(c: Call, value: Value, rank: int, last: bool) -> Value:
    """Images with the channels where the program has them."""
    return c.g.Transpose(value, perm=[0, *range(2, rank), 1]) if last else value


def crop_or_pad(
    c: Call, value: Value, pads: tuple[tuple[int, int], ...]
) -> tuple[Value, list[int]]:
    """Images without what negative padding cuts off, and the padding of ONNX that remains."""
    befores = [max(0, -before) for before, _ in pads]
    afters = [-max(0, -after) or 2**31 for _, after in pads]
    if any(befores) or min(afters) < 0:
        value = c.g.Slice(value, befores, afters, list(range(2, 2 + len(pads))))
    positive = [(max(0, before), max(0, after)) for before, after in pads]
    return value, [before for before, _ in positive] + [after for _, after in positive]


def pads_of(
    c: Call, slot: str, kernel: tuple[int, ...], fits: bool = True
) -> tuple[tuple[int, int], ...]:
    """The padding of a convolution or pooling around its images."""
    size = size_of(c.shape(slot), c.attr("data_format") or "NCHW")
    algorithm = c.attr("padding_algorithm") or "EXPLICIT"
    need(
        algorithm != "SAME" or min(size) > 0 or max(c.attr("strides")) == 1,
        f"padding SAME depends on the size of the images, which is open: {c.spec(slot)}",
    )
    if algorithm == "SAME" and min(size) < 0:
        return tuple(((k - 1) // 2, k - 1 - (k - 1) // 2) for k in kernel)
    strides = tuple(c.attr("strides"))
    found = padding(size, kernel, strides, c.attr("paddings"), algorithm)
    if not fits:
        return found
    dilations = [1] * len(kernel) if algorithm == "SAME" else c.attr("dilations") or [1, 1, 1]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=False)]
    return tuple(_filled(n, pair, r) for n, pair, r in zip(size, found, reach, strict=True))


def _filled(size: int, pads: tuple[int, int], reach: int) -> tuple[int, int]:
    """Padding to which a window fits: fluid has one window even if it is larger by a step."""
    lacking = 0 if size < 0 else max(0, reach - size - sum(pads))
    return pads[0], pads[1] + lacking


@exports(
    "conv2d", "depthwise_conv2d", "conv3d",
    without="images of 8 bits that MKL-DNN computes with; SAME with open sizes and steps",
)  # fmt: skip
def convolution(c: Call) -> None:
    """``Conv``; SAME pads as fluid does, which ignores dilations then."""
    need(c.dtype("Input").kind == "f", f"its images are {c.dtype('Input')}")
    rank, last = c.rank("Input"), has_channels_last(c.attr("data_format"))
    kernel = c.shape("Filter")[2:]
    x = c["Input"]
    if c.op.type == "depthwise_conv2d" and c.attr("fuse_relu_before_depthwise_conv"):
        x = c.g.Relu(x)
    same = c.attr("padding_algorithm") == "SAME"
    x, pads = crop_or_pad(c, first(c, x, rank, last), pads_of(c, "Input", kernel))
    made = c.g.Conv(
        x, c["Filter"], c.get("Bias"),
        strides=list(c.attr("strides")), pads=pads, group=c.attr("groups"),
        dilations=[1] * len(kernel) if same else list(c.attr("dilations")),
        kernel_shape=list(kernel) if min(kernel) > 0 else None,
    )  # fmt: skip
    made = back(c, made, rank, last)
    if c.attr("fuse_residual_connection"):
        made = c.g.Add(made, c["ResidualData"])
    kind, alpha = c.attr("fuse_activation") or "", c.attr("fuse_alpha") or 0.0
    c.set("Output", activated(c, kind, made, "Input", alpha))


@exports("deformable_conv", "deformable_conv_v1", opset=19)
def deformable_conv(c: Call) -> None:
    """``DeformConv``."""
    pads = list(c.attr("paddings"))
    mask = c["Mask"] if c.op.type == "deformable_conv" else None
    made = c.g.DeformConv(
        c["Input"], c["Filter"], c["Offset"], None, mask,
        strides=list(c.attr("strides")), pads=pads * 2, dilations=list(c.attr("dilations")),
        group=c.attr("groups"), offset_group=c.attr("deformable_groups"),
    )  # fmt: skip
    c.set("Output", made)
