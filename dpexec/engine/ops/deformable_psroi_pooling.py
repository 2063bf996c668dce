"""``deformable_psroi_pooling``: means of regions with learned offsets of their bins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.runs import add_at
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, passes_on, require
from dpexec.engine.ops._rois import require_regions
from dpexec.engine.ops._sequences import row_owners
from dpexec.engine.ops._shapes import require_same_dtype, same_dims

_SMALLEST = 0.1
"""The least height and width of a region, in cells."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How regions are divided; pairs are rows and columns.

    Args:
        pooled: bins of a region.
        group: parts of a region with their own channels.
        part: parts of a region that are moved together.
        samples: points of a bin along each axis.
        scale: cells of the features per pixel.
        factor: factor of the bins' offsets; 0 if they are not moved.
    """

    pooled: tuple[int, int]
    group: tuple[int, int]
    part: tuple[int, int]
    samples: int
    scale: float
    factor: float

    def numbers(self, xp: Any, parts: tuple[int, int]) -> tuple[Any, Any]:
        """For every bin the number of its part: rows ``(P, 1)``, columns ``(1, Q)``."""
        down, across = (
            xp.arange(bins) * count // bins for bins, count in zip(self.pooled, parts, strict=True)
        )
        return down[:, None], across[None, :]


def _sizes(
    *,
    no_trans: bool,
    spatial_scale: float,
    group_size: Sequence[int],
    pooled_height: int,
    pooled_width: int,
    part_size: Sequence[int],
    sample_per_part: int,
    trans_std: float,
) -> _Sizes:
    return _Sizes(
        (pooled_height, pooled_width), (group_size[0], group_size[1]),
        (part_size[0], part_size[1]), sample_per_part, spatial_scale,
        0.0 if no_trans else trans_std,
    )  # fmt: skip


@passes_on(_sizes)
def _infer(
    x: Spec, rois: Spec, lod: Spec | None, trans: Spec, *, output_dim: int, **attrs: Any
) -> tuple[Spec, Spec]:
    sizes = _sizes(**attrs)
    require_regions(x, rois, lod, *sizes.pooled)
    require_same_dtype(x, trans, "Input and Trans")
    require(
        min(*sizes.group, *sizes.part, sizes.samples, output_dim) > 0,
        "group_size, part_size, sample_per_part and output_dim must be positive",
    )
    channels = output_dim * sizes.group[0] * sizes.group[1]
    require(
        dims_match(x.shape[1], channels),
        f"Input {x} must have {channels} channels, output_dim times group_size",
    )
    shape = (rois.shape[0], -1, *sizes.part)
    require(
        same_dims(trans.shape, shape),
        f"Trans {trans} must be {list(shape)}, two numbers for every class and part",
    )
    require(
        attrs["no_trans"] or trans.shape[1] < 0 or output_dim % max(trans.shape[1] // 2, 1) == 0,
        f"the classes of Trans {trans} must divide output_dim {output_dim}",
    )
    out = Spec((rois.shape[0], output_dim, *sizes.pooled), x.dtype)
    return out, out


def _samples(r: SampleRng) -> list[Sample]:
    rois = np.array([[1.0, 1.4, 9.0, 7.0], [0.2, 0.1, 5.3, 4.0]])
    inputs = {"ROIs": rois, "ROIs@LOD": Lod([[0, 1, 2]])}
    attrs = {
        "pooled_height": 2, "pooled_width": 2, "part_size": [2, 2], "group_size": [1, 1],
        "sample_per_part": 2, "trans_std": 0.1, "spatial_scale": 0.5, "output_dim": 2,
        "no_trans": False,
    }  # fmt: skip
    fixed = {"no_trans": True, "sample_per_part": 1, "output_dim": 1, "group_size": [2, 1]}
    swapped = dict.fromkeys(
        ("Input@GRAD", "Trans@GRAD"),
        ("uses the height of parts as their width in the gradient; dpexec gives the derivative"),
    )
    inputs["Input"] = r.normal((2, 2, 4, 5))
    moved = ("Input", "Trans")
    return [
        Sample(inputs | {"Trans": r.normal((2, 2, 2, 2))}, attrs, grad=moved),
        Sample(inputs | {"Trans": r.normal((2, 2, 2, 2))}, attrs | fixed, grad=("Input",)),
        Sample(
            inputs | {"Trans": r.normal((2, 4, 1, 1))}, attrs | {"part_size": [1, 1]}, grad=moved
        ),
        Sample(
            inputs | {"Trans": r.normal((2, 2, 1, 2))}, attrs | {"part_size": [1, 2]},
            grad=moved, deviates=swapped,
        ),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Points:
    """One point of every bin: ``(regions, classes, 1, P, Q)``, planes ``(regions, ..., P, Q)``.

    Args:
        plane: image and channel, as one number, of every bin and every channel of the result.
        row: row of the point.
        column: column of the point.
        inside: whether the point counts.
        size: height and width of an image.
    """

    plane: Any
    row: Any
    column: Any
    inside: Any
    size: tuple[int, int]

    def corners(self, xp: Any) -> Iterator[tuple[Any, ...]]:
        """For each of the four surrounding cells: number, weight, slopes along both axes."""
        top, left = xp.floor(self.row), xp.floor(self.column)
        bottom, right = xp.ceil(self.row), xp.ceil(self.column)
        down, across = self.row - top, self.column - left
        columns = ((left, 1 - across, -1), (right, across, 1))
        for i, by_row, downwards in ((top, 1 - down, -1), (bottom, down, 1)):
            for j, by_column, sideways in columns:
                cell = (i * self.size[1] + j).astype(np.int64)
                number = self.plane * (self.size[0] * self.size[1]) + cell
                weights = by_row * by_column, downwards * by_column, sideways * by_row
                yield number, *[weight * self.inside for weight in weights]


class _Bins:
    """Where the bins of all regions lie.

    Args:
        xp: ``numpy`` or ``cupy``.
        x: maps of features.
        rois: regions.
        lod: the images as sequences of regions.
        trans: offsets of the bins, ``(regions, 2 * classes, parts...)``.
        sizes: how regions are divided.
        channels: number of channels of the result.
    """

    def __init__(
        self, xp: Any, x: Any, rois: Any, lod: Lod, trans: Any, sizes: _Sizes, channels: int
    ) -> None:
        self.xp, self.size, self.sizes = xp, x.shape[2:], sizes
        kind = x.dtype.type
        corners = xp.trunc(rois + kind(0.5) * xp.sign(rois))
        low = corners[:, :2] * kind(sizes.scale) - kind(0.5)
        high = (corners[:, 2:] + 1) * kind(sizes.scale) - kind(0.5)
        self.extent = xp.maximum(high - low, kind(_SMALLEST))[:, ::-1]
        self.start = low[:, ::-1]
        moved = trans.reshape(len(rois), -1, 2, *sizes.part)[:, :, ::-1] * kind(sizes.factor)
        if not sizes.factor:
            moved = moved[:, :1]
        self.part = sizes.numbers(xp, sizes.part)
        self.moved = moved[:, :, :, *self.part]
        down, across = sizes.numbers(xp, sizes.group)
        channel = xp.arange(channels)[:, None, None] * (sizes.group[0] * sizes.group[1])
        plane = channel + down * sizes.group[1] + across
        image = xp.asarray(row_owners(lod))[:, None, None, None]
        shape = (len(rois), self.moved.shape[1], -1, *sizes.pooled)
        self.plane = (image * x.shape[1] + plane).reshape(shape)

    def points(self) -> Iterator[_Points]:
        """All points of a bin, one after another."""
        starts = [self._starts(axis) for axis in (0, 1)]
        count = self.sizes.samples
        for down in range(count):
            for across in range(count):
                row, column = (
                    start + step * number
                    for (start, step), number in zip(starts, (down, across), strict=True)
                )
                yield self._point(row[:, :, None], column[:, :, None])

    def _starts(self, axis: int) -> tuple[Any, Any]:
        """First points of all bins along an axis, and the steps to the next ones."""
        extent = self.extent[:, axis, None, None, None]
        size = extent / self.sizes.pooled[axis]
        number = self.xp.arange(self.sizes.pooled[axis]).astype(extent.dtype)
        number = number[:, None] if axis == 0 else number[None, :]
        start = self.start[:, axis, None, None, None] + number * size
        return start + self.moved[:, :, axis] * extent, size / self.sizes.samples

    def _point(self, row: Any, column: Any) -> _Points:
        xp, (height, width) = self.xp, self.size
        inside = (row >= -0.5) & (row <= height - 0.5) & (column >= -0.5) & (column <= width - 0.5)
        row, column = xp.clip(row, 0, height - 1), xp.clip(column, 0, width - 1)
        return _Points(self.plane, row, column, inside, self.size)


@op(
    "deformable_psroi_pooling",
    inputs="Input ROIs ROIs@LOD Trans",
    outputs="TopCount Output",
    infer=_infer,
    samples=_samples,
)
@passes_on(_sizes)
def deformable_psroi_pooling(
    xp: Any, x: Any, rois: Any, lod: Lod, trans: Any, *, output_dim: int, **attrs: Any
) -> tuple[Any, Any]:
    """Means over bins that ``Trans`` moves, and the number of points of each bin.

    A region is divided into bins, each moved by ``trans_std * Trans`` times the size of the region.
    Its value is the mean over those of ``sample_per_part ** 2`` points that lie in the image. With
    ``group_size``, bins read their own channels, as in ``psroi_pool``. Source: Paddle op
    ``deformable_psroi_pooling``; Dai and others, 2017 (deformable convolutional networks).
    """
    sizes = _sizes(**attrs)
    bins = _Bins(xp, x, rois, lod, trans, sizes, output_dim)
    out, count, flat = xp.zeros(bins.plane.shape, x.dtype), 0, x.ravel()
    for point in bins.points():
        count = count + point.inside
        for number, weight, _, _ in point.corners(xp):
            out += flat[number] * weight
    count = xp.broadcast_to(xp.asarray(count), out.shape).astype(x.dtype)
    shape = (len(rois), output_dim, *sizes.pooled)
    return count.reshape(shape), (out / xp.maximum(count, 1)).reshape(shape)


@deformable_psroi_pooling.grad(
    "Input", "ROIs", "ROIs@LOD", "Trans", "TopCount", "Output@GRAD",
    outputs="Input@GRAD Trans@GRAD", dense=True,
)  # fmt: skip
@passes_on(_sizes)
def deformable_psroi_pooling_grad(
    xp: Any, x: Any, rois: Any, lod: Lod, trans: Any, count: Any, d_out: Any, *,
    output_dim: int, **attrs: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """The gradients: of cells by their weights, of a bin's offsets by the slopes at its points."""
    sizes = _sizes(**attrs)
    bins = _Bins(xp, x, rois, lod, trans, sizes, output_dim)
    flow = (d_out / xp.maximum(count, 1)).reshape(bins.plane.shape)
    flat, d_flat = x.ravel(), xp.zeros(x.size, x.dtype)
    slopes: list[Any] = [0, 0]
    for point in bins.points():
        for number, weight, *along in point.corners(xp):
            add_at(xp, d_flat, number, flow * weight)
            if sizes.factor:
                read = flow * flat[number]
                slopes = [sum_ + read * slope for sum_, slope in zip(slopes, along, strict=True)]
    d_parts = xp.zeros((sizes.part[0] * sizes.part[1], len(rois), trans.shape[1] // 2, 2), x.dtype)
    if sizes.factor:
        found = xp.stack([slope.sum(axis=2) for slope in slopes[::-1]], axis=2)
        found *= bins.extent[:, None, ::-1, None, None] * x.dtype.type(sizes.factor)
        part = bins.part[0] * sizes.part[1] + bins.part[1]
        add_at(xp, d_parts, part, xp.moveaxis(found, (3, 4), (0, 1)))
    return d_flat.reshape(x.shape), xp.moveaxis(d_parts, 0, -1).reshape(trans.shape)
