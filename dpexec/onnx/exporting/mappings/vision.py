"""Pixels in other places: shuffles, grids, windows, regions."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.sequences import windows
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows


def _divided(c: Call, x: str, axis: int, sizes: list[int], rank: int) -> str:
    """A tensor with several dimensions in place of one; the others may be open."""
    g, shape = c.g, c.g.Shape(x)
    parts = [g.Slice(shape, [0], [axis])] if axis else []
    parts.append(g.ints(*sizes))
    parts += [g.Slice(shape, [axis + 1], [rank])] if axis + 1 < rank else []
    made: str = g.Reshape(x, g.Concat(*parts, axis=0))
    return made


@exports("pixel_shuffle")
def pixel_shuffle(c: Call) -> None:
    """``DepthToSpace``, column by row."""
    c.set("Out", c.g.DepthToSpace(c["X"], blocksize=c.attr("upscale_factor"), mode="CRD"))


@exports("space_to_depth", without="open sizes")
def space_to_depth(c: Call) -> None:
    """``DepthToSpace`` to finer images, whose elements in order are the result."""
    (channels, height, width), b = c.shape("X")[1:], c.attr("blocksize")
    need(min(channels, height, width) > 0, f"the size of its images is open: {c.spec('X')}")
    finer = c.g.DepthToSpace(c["X"], blocksize=b, mode="DCR")
    c.set("Out", c.g.reshape(finer, -1, channels * b * b, height // b, width // b))


@exports("shuffle_channel")
def shuffle_channel(c: Call) -> None:
    """Channels as a matrix of groups, transposed."""
    channels, group = c.shape("X")[1], c.attr("group")
    need(channels > 0, "its number of channels is open")
    made = _divided(c, c["X"], 1, [group, channels // group], 4)
    made = c.g.Transpose(made, perm=[0, 2, 1, 3, 4])
    c.set("Out", c.g.Reshape(made, c.g.Shape(c["X"])))


@exports("temporal_shift")
def temporal_shift(c: Call) -> None:
    """Some channels from the frame before, some from the one after."""
    g, count, ratio = c.g, c.attr("seg_num"), np.float32(c.attr("shift_ratio"))
    channels = c.shape("X")[1]
    need(channels > 0, "its number of channels is open")
    cuts = [int(channels * ratio), int(channels * 2 * ratio)]
    frames = _divided(c, c["X"], 0, [-1, count], 4)
    last = np.iinfo(np.int64).max
    before = g.Slice(frames, [0], [cuts[0]], [2])
    after = g.Slice(frames, [cuts[0]], [cuts[1]], [2])
    rest = g.Slice(frames, [cuts[1]], [last], [2])
    zero, pads = c.number(0.0), [0] * 10
    late = g.Pad(g.Slice(before, [0], [-1], [1]), [0, 1, *pads[2:]], zero)
    early = g.Pad(g.Slice(after, [1], [last], [1]), [*pads[:6], 1, *pads[7:]], zero)
    made = g.Concat(late, early, rest, axis=2)
    c.set("Out", g.Reshape(made, g.Shape(c["X"])))


@exports("grid_sampler", opset=16)
def grid_sampler(c: Call) -> None:
    """``GridSample`` between aligned corners, with zeros around."""
    mode = "bilinear" if c.g.opset < 20 else "linear"
    made = c.g.GridSample(c["X"], c["Grid"], mode=mode, padding_mode="zeros", align_corners=1)
    c.set("Output", made)


@exports("affine_grid", constants="OutputShape")
def affine_grid(c: Call) -> None:
    """A product of the matrices with the places of all pixels."""
    given = c.constants("OutputShape")
    _, _, height, width = given[0].tolist() if given else c.attr("output_shape")
    down, across = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    points = np.stack([across, down, np.ones_like(down)], -1).reshape(1, -1, 3)
    turned = c.g.Transpose(c["Theta"], perm=[0, 2, 1])
    made = c.g.MatMul(c.number(points, "Theta"), turned)
    c.set("Output", c.g.reshape(made, -1, height, width, 2))


@exports("unfold", without="dilations")
def unfold(c: Call) -> None:
    """Windows of images as columns: a convolution with a filter for each element of a window."""
    need(set(c.attr("dilations")) == {1}, "its windows are dilated")
    pads = list(c.attr("paddings"))
    made = windows(c, list(c.attr("kernel_sizes")), list(c.attr("strides")), pads)
    width = c.shape("X")[1] * int(np.prod(c.attr("kernel_sizes")))
    c.set("Y", c.g.reshape(made, 0, width, -1))


def _images(c: Call) -> str:
    """The number of each region's image: regions are sequences, or divided by offsets."""
    g, offsets = c.g, c.get("RoisLod")
    if offsets is None:
        lengths = c.sequences("ROIs")
    else:
        offsets = c.typed(offsets, c.dtype("RoisLod"), np.int64)
        lengths = g.Sub(g.Slice(offsets, [1], [2**31 - 1]), g.Slice(offsets, [0], [-1]))
    return Rows(g, lengths).owners


@exports("roi_align", opset=16)
def roi_align(c: Call) -> None:
    """``RoiAlign`` with the images that regions belong to."""
    made = c.g.RoiAlign(
        c["X"], c["ROIs"], _images(c),
        output_height=c.attr("pooled_height"), output_width=c.attr("pooled_width"),
        sampling_ratio=max(c.attr("sampling_ratio"), 0), spatial_scale=c.attr("spatial_scale"),
        coordinate_transformation_mode=("" if c.attr("aligned") else "output_") + "half_pixel",
    )  # fmt: skip
    c.set("Out", made, lengths=())


@exports("spp", without="open sizes")
def spp(c: Call) -> None:
    """Pooling into finer and finer windows, put together."""
    g, kind, parts = c.g, c.attr("pooling_type"), []
    height, width = c.shape("X")[2:]
    need(min(height, width) > 0, f"the size of its images is open: {c.spec('X')}")
    for level in range(c.attr("pyramid_height")):
        bins = 2**level
        kernel = [-(-n // bins) for n in (height, width)]
        pads = [(k * bins - n + 1) // 2 for k, n in zip(kernel, (height, width), strict=True)]
        need(max(pads) < min(kernel), "its windows lie in the padding alone")
        name = "MaxPool" if kind == "max" else "AveragePool"
        made = g.node(name, c["X"], kernel_shape=kernel, strides=kernel, pads=pads * 2)
        parts.append(g.Flatten(made, axis=1))
    c.set("Out", g.Concat(*parts, axis=1))


@exports("roi_pool")
def roi_pool(c: Call) -> None:
    """``MaxRoiPool`` with the images that regions belong to."""
    g = c.g
    images = g.cast(_images(c), c.dtype("ROIs"))
    regions = g.Concat(g.Unsqueeze(images, [1]), c["ROIs"], axis=1)
    shape = [c.attr("pooled_height"), c.attr("pooled_width")]
    made = g.MaxRoiPool(c["X"], regions, pooled_shape=shape, spatial_scale=c.attr("spatial_scale"))
    c.set("Out", made, lengths=())
