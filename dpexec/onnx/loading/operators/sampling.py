"""Parts of images at places that are computed: ``AffineGrid``, ``GridSample``, ``RoiAlign`` ..."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

_CUBIC = -0.75
"""The coefficient of cubic weights that ONNX prescribes here."""


@operator("GridSample")
def grid_sample(node: Node) -> Any:
    """Fluid's operator where it means the same, else pixels around each place times weights."""
    mode = node.attr("mode", "bilinear" if node.version < 20 else "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    padding, corners = node.attr("padding_mode", "zeros"), bool(node.attr("align_corners", 0))
    if mode not in ("nearest", "linear", "cubic") or padding not in (
        "zeros",
        "border",
        "reflection",
    ):
        node.fail(f"mode {mode!r} with padding {padding!r} is unknown")
    image, grid = node.dims(0), node.dims(1)
    sizes = (*image[2:], *grid[1:-1])
    same = all(isinstance(size, int) for size in sizes) and image[2:] == grid[1:-1]
    if (mode, padding, corners, len(image), same) == ("linear", "zeros", True, 4, True):
        return node.add("grid_sampler", {"X": node.var(0), "Grid": node.var(1)}, "Output")
    return _Sampler(node, mode, padding, corners).run()


class _Sampler:
    """Samples images ``[n, channels, ...]`` at places ``[n, ..., axes]``.

    Args:
        node: the node.
        mode: ``nearest``, ``linear`` or ``cubic``.
        padding: ``zeros``, ``border`` or ``reflection``: what lies outside.
        corners: whether -1 and 1 are the middles of the outermost pixels, not their edges.
    """

    def __init__(self, node: Node, mode: str, padding: str, corners: bool) -> None:
        self.node, self.mode, self.padding, self.corners = node, mode, padding, corners
        self.dims, self.grid_dims = node.dims(0), node.dims(1)
        self.axes = len(self.dims) - 2

    def run(self) -> Variable:
        """The images at the places, ``[n, channels, ...]``."""
        node, x, grid = self.node, self.node.var(0), self.node.var(1)
        order = [0, *range(2, 2 + self.axes), 1]
        pixels = node.transpose(x, order)  # channels last: one row of them for each pixel
        last = len(self.grid_dims) - 1
        parts = [node.squeeze(node.slice(grid, last, a, a + 1), [last]) for a in range(self.axes)]
        places = [self._place(v, self.dims[2 + a]) for a, v in enumerate(reversed(parts))]
        samples = self._samples(places[0])
        weighted = [self._weights(place) for place in places]
        total: Variable | None = None
        for chosen in itertools.product(*weighted):
            found = self._taken(pixels, samples, [place for place, _ in chosen])
            for _, weight in chosen:
                if weight is not None:
                    found = node.binary("elementwise_mul", found, node.unsqueeze(weight, [last]))
            total = found if total is None else node.binary("elementwise_add", total, found)
        assert total is not None
        return node.transpose(total, [0, last, *range(1, last)])

    def _real(self, size: Any) -> Variable:
        """A size as a real number."""
        kind = self.node.var(1).dtype
        if isinstance(size, OpenDim):
            return self.node.cast(self.node.builder.size_variable(size), kind)
        return self.node.number(float(size), kind)

    def _place(self, grid: Variable, size: Any) -> Variable:
        """From -1 to 1 to counts of pixels; places outside are moved where padding says so."""
        node, length = self.node, self._real(size)
        if self.corners:
            place = node.binary("elementwise_mul", node.scaled(grid, 0.5, 0.5),
                                node.scaled(length, bias=-1.0))  # fmt: skip
        else:
            place = node.scaled(node.binary("elementwise_mul", node.scaled(grid, bias=1.0), length),
                                0.5, -0.5)  # fmt: skip
        if self.mode == "cubic" or self.padding == "zeros":
            return place
        return self._inside(place, size)

    def _inside(self, place: Variable, size: Any) -> Variable:
        """A place within the image: the nearest one, or the mirrored one."""
        node = self.node
        last = node.scaled(self._real(size), bias=-1.0)
        if self.padding == "reflection":
            place = self._mirrored(place, last)
        place = node.binary("elementwise_max", place, node.number(0.0, place.dtype))
        return node.binary("elementwise_min", place, last)

    def _mirrored(self, place: Variable, last: Variable) -> Variable:
        """A place mirrored at the edges of the image, or at its outermost pixels, until inside."""
        node = self.node
        low = 0.0 if self.corners else -0.5
        span = node.scaled(last, bias=-2.0 * low)  # of one pixel with corners, 0
        span = node.binary("elementwise_max", span, node.number(1e-6, span.dtype))
        away = node.add("abs", {"X": node.scaled(place, bias=-low)})
        round_trip = node.scaled(span, 2.0)
        rest = node.binary("elementwise_mod", away, round_trip)
        back = node.binary("elementwise_sub", round_trip, rest)
        return node.scaled(node.binary("elementwise_min", rest, back), bias=low)

    def _weights(self, place: Variable) -> list[tuple[Variable, Variable | None]]:
        """Pixels around a place along an axis, with their weights; None for 1."""
        node = self.node
        if self.mode == "nearest":
            return [(_rounded(node, place), None)]
        floor = node.add("floor", {"X": place})
        part = node.binary("elementwise_sub", place, floor)
        if self.mode == "linear":
            return [(floor, node.scaled(part, -1.0, 1.0)), (node.scaled(floor, bias=1.0), part)]
        return [
            (node.scaled(floor, bias=float(k)), _cubic(node, node.scaled(part, bias=float(-k))))
            for k in (-1, 0, 1, 2)
        ]

    def _samples(self, place: Variable) -> Variable:
        """The number of each place's image."""
        ones = self.node.add("fill_any_like", {"X": place}, value=1.0, dtype=int(VarType.INT64))
        return self.node.add("cumsum", {"X": ones}, axis=0, exclusive=True)

    def _taken(self, pixels: Variable, samples: Variable, places: Sequence[Variable]) -> Variable:
        """Rows of channels at whole places; 0 outside where padding says so."""
        node, index, masks = self.node, [samples], []
        for axis, place in enumerate(places):
            size = self.dims[2 + axis]
            if self.padding == "reflection" and self.mode == "cubic":
                inside = _rounded(node, self._inside(place, size))
            else:
                last = node.scaled(self._real(size), bias=-1.0)
                inside = node.binary("elementwise_max", place, node.number(0.0, place.dtype))
                inside = node.binary("elementwise_min", inside, last)
            if self.padding == "zeros":
                masks.append(node.cast(node.binary("equal", inside, place), place.dtype))
            index.append(node.cast(inside, VarType.INT64))
        where = node.add("stack", {"X": index}, "Y", axis=len(self.grid_dims) - 1)
        found = node.add("gather_nd", {"X": pixels, "Index": where})
        for mask in masks:
            mask = node.unsqueeze(mask, [len(self.grid_dims) - 1])
            found = node.binary("elementwise_mul", found, mask)
        return found


def _rounded(node: Node, place: Variable) -> Variable:
    """The nearest whole number; halves go to the even one."""
    low = node.add("floor", {"X": place})
    part = node.binary("elementwise_sub", place, low)
    half = node.scaled(low, 0.5)
    odd = node.scaled(node.binary("elementwise_sub", half, node.add("floor", {"X": half})), 2.0)
    above = node.cast(node.binary("greater_than", part, node.number(0.5, part.dtype)), part.dtype)
    even = node.binary("equal", part, node.number(0.5, part.dtype))
    tie = node.binary("elementwise_mul", node.cast(even, part.dtype), odd)
    return node.binary("elementwise_add", low, node.binary("elementwise_add", above, tie))


def _cubic(node: Node, distance: Variable) -> Variable:
    """The weight of a pixel at a distance."""
    x = node.add("abs", {"X": distance})

    def polynomial(*factors: float) -> Variable:
        made = node.scaled(x, factors[0], factors[1])
        for factor in factors[2:]:
            made = node.scaled(node.binary("elementwise_mul", made, x), bias=factor)
        return made

    a = _CUBIC
    near, far = polynomial(a + 2, -(a + 3), 0.0, 1.0), polynomial(a, -5 * a, 8 * a, -4 * a)
    chosen = node.binary("less_equal", x, node.number(1.0, x.dtype))
    return node.add("where", {"Condition": chosen, "X": near, "Y": far})


@operator("AffineGrid")
def affine_grid(node: Node) -> Any:
    """Places of pixels, from -1 to 1, moved by a matrix for each sample; sizes must be known."""
    sizes = node.sizes_of_run(1, "the size")[2:]
    if not all(isinstance(size, int) for size in sizes):
        node.constant(1, "the size")
    inward = 0.0 if node.attr("align_corners", 0) else 1.0
    steps = [
        np.linspace(inward / size - 1, 1 - inward / size, size) if size > 1 else np.zeros(1)
        for size in sizes
    ]
    places = np.stack([*np.meshgrid(*steps, indexing="ij")][::-1], -1).reshape(-1, len(sizes))
    whole = np.concatenate([places, np.ones([len(places), 1])], 1)
    theta = node.var(0)
    rows = node.builder.constant(whole.T.astype(to_numpy(theta.dtype)), f"{node.prefix}.places")
    made = node.add("mul", {"X": theta, "Y": rows}, x_num_col_dims=2)
    return node.reshape(node.transpose(made, [0, 2, 1]), [node.dims(0)[0], *sizes, len(sizes)])


@operator("RoiAlign")
def roi_align(node: Node) -> Any:
    """Means of points between pixels; regions are sorted by their images, and back."""
    if node.attr("mode", "avg") != "avg":
        node.fail("the largest of interpolated elements is not supported")
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    mode = node.attr("coordinate_transformation_mode", default)
    return _by_image(
        node,
        "roi_align",
        node.var(1),
        node.var(2),
        aligned=mode == "half_pixel",
        pooled_height=node.attr("output_height", 1),
        pooled_width=node.attr("output_width", 1),
        sampling_ratio=node.attr("sampling_ratio", 0) or -1,
        spatial_scale=float(node.attr("spatial_scale", 1.0)),
    )


@operator("MaxRoiPool")
def max_roi_pool(node: Node) -> Any:
    """The largest elements of parts of regions; these are sorted by their images, and back."""
    regions, (height, width) = node.var(1), node.attr("pooled_shape")
    return _by_image(
        node,
        "roi_pool",
        node.slice(regions, 1, 1, 5),
        node.squeeze(node.slice(regions, 1, 0, 1), [1]),
        pooled_height=height,
        pooled_width=width,
        spatial_scale=float(node.attr("spatial_scale", 1.0)),
    )


def _by_image(node: Node, op_type: str, regions: Variable, images: Variable, **attrs: Any) -> Any:
    """An operator on regions that lie image by image, its results in the order of the node.

    Args:
        node: the node; its first input are the images.
        op_type: type of the operator.
        regions: left, top, right and bottom of each, [regions, 4].
        images: the number of each one's image, [regions].
        attrs: the operator's attributes.
    """
    images = node.cast(images, VarType.INT64)
    order = node.add("argsort", {"X": images}, "Indices", axis=0)
    back = node.add("argsort", {"X": order}, "Indices", axis=0)
    ends = node.add("size", {"Input": images})  # offsets of the images: those before, and all
    count = node.builder.size_variable(node.dims(0)[0])
    numbers = node.add("range", {"Start": node.number(0, VarType.INT64), "End": count,
                                 "Step": node.number(1, VarType.INT64)})  # fmt: skip
    earlier = node.binary("less_than", node.unsqueeze(images, [0]), node.unsqueeze(numbers, [1]))
    before = node.add("reduce_sum", {"X": node.cast(earlier, VarType.INT64)}, dim=[1])
    offsets = node.concat([before, node.reshape(ends, [1])], 0)
    given = {
        "X": node.var(0),
        "ROIs": node.add("gather", {"X": regions, "Index": order}),
        "RoisLod": offsets,
    }
    made = node.add(op_type, given, **attrs)
    return node.add("gather", {"X": made, "Index": back})
