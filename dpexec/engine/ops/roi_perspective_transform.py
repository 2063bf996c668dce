"""``roi_perspective_transform``: quadrangular regions of features, rectified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.runs import add_at
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import Numbers
from dpexec.engine.ops._rois import images, scaled
from dpexec.engine.ops._sequences import sequence_count
from dpexec.engine.ops._shapes import require_float, require_same_dtype

_NEAR = 1e-4
"""Coordinates that differ by less count as equal."""
_LEAST = 1e-5
"""Added to divisors."""


def _infer(
    x: Spec,
    rois: Spec,
    lod: Spec | None,
    *,
    transformed_height: int = 1,
    transformed_width: int = 1,
) -> tuple[Spec, ...]:
    require_float(x)
    require_same_dtype(x, rois, "X and ROIs")
    require(x.rank == 4, f"X {x} must be (N, C, H, W)")
    require(
        rois.rank == 2 and dims_match(rois.shape[1], 8),
        f"ROIs {rois} must be (R, 8): four corners",
    )
    require(
        x.shape[0] < 0 or sequence_count(lod) <= x.shape[0],
        f"ROIs {rois} have {sequence_count(lod)} sequences, but X {x} fewer images",
    )
    require(
        min(transformed_height, transformed_width) > 0,
        f"transformed_height and transformed_width must be positive, but are {transformed_height}, "
        f"{transformed_width}",
    )
    size = (transformed_height, transformed_width)
    out = Spec((rois.shape[0], x.shape[1], *size), x.dtype, lod_level=rois.lod_level)
    mask = Spec((rois.shape[0], 1, *size), VarType.INT32)
    matrices = Spec((rois.shape[0], 9), x.dtype)
    return out, mask, matrices, Spec((0,), VarType.INT32), Spec((0,), x.dtype)


def _samples(r: Any) -> list[Sample]:
    rois = [[1, 1, 7.2, 0.6, 6.8, 5, 0.8, 4.4], [0.4, 2, 4, 0, 8, 4.2, 3, 7.6]]
    inputs = {"X": r.normal((2, 2, 5, 6)), "ROIs": np.array(rois), "ROIs@LOD": Lod([[0, 1, 2]])}
    attrs = {"transformed_height": 3, "transformed_width": 4}
    return [
        Sample(inputs, attrs, grad=("X",)),
        Sample(inputs, attrs | {"spatial_scale": 0.5}, grad=("X",)),
        Sample(inputs, {"spatial_scale": 0.7, "transformed_width": 3}, grad=("X",)),
        Sample({**inputs, "ROIs@LOD": Lod([[0, 2]])}, attrs, grad=()),
    ]


def _matrices(rois: Numbers, height: int, width: int) -> Numbers:
    """Matrices that map positions in the result to those in the features, ``(regions, 3, 3)``.

    Args:
        rois: ``(regions, 4, 2)``: columns and rows of corners.
        height: height of the result.
        width: width of the result; a region that is narrower by its sides ends earlier.
    """
    sides = np.sqrt(((rois - np.roll(rois, -1, axis=1)) ** 2).sum(axis=2))
    across, down = (sides[:, 0] + sides[:, 2]) / 2, (sides[:, 1] + sides[:, 3]) / 2
    rows = max(2, height)
    columns = np.floor(across * (rows - 1) / down + 0.5) + 1
    last = np.maximum(2, np.minimum(columns, width))[:, None].astype(rois.dtype) - 1
    first, second, third, fourth = rois.transpose(1, 0, 2)
    one, two, three = second - third, fourth - third, first - second + third - fourth
    area = (_cross(one, two) + _LEAST)[:, None]
    slant = (_cross(three, two)[:, None] / area / last).astype(rois.dtype)
    tilt = (_cross(one, three)[:, None] / area / (rows - 1)).astype(rois.dtype)
    made = np.ones((len(rois), 3, 3), rois.dtype)
    made[:, :2, 0] = (second - first + slant * last * second) / last
    made[:, :2, 1] = (fourth - first + tilt * (rows - 1) * fourth) / (rows - 1)
    made[:, :2, 2] = first
    made[:, 2, 0], made[:, 2, 1] = slant[:, 0], tilt[:, 0]
    return made


def _cross(a: Numbers, b: Numbers) -> Numbers:
    return a[:, 0] * b[:, 1] - b[:, 0] * a[:, 1]


def _sources(matrices: Numbers, height: int, width: int) -> tuple[Numbers, Numbers]:
    """Columns and rows at which the features are read, ``(regions, height * width)``."""
    down, across = np.divmod(np.arange(height * width), width)
    places = np.stack([across, down, np.ones_like(down)]).astype(matrices.dtype)
    column, row, depth = (matrices @ places).transpose(1, 0, 2)
    return column / depth, row / depth


def _inside(rois: Numbers, column: Numbers, row: Numbers) -> Numbers:
    """Whether positions are in their region, or on its border.

    Args:
        rois: ``(regions, 4, 2)``.
        column: ``(regions, places)``.
        row: likewise.
    """
    found, crossings = np.zeros(column.shape, bool), np.zeros(column.shape, int)
    for corner in range(4):
        start, stop = rois[:, corner, :, None], rois[:, (corner + 1) % 4, :, None]
        (left, top), (right, bottom) = (
            np.minimum(start, stop).swapaxes(0, 1),
            np.maximum(start, stop).swapaxes(0, 1),
        )
        level = bottom - top < _NEAR
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (stop[:, 0] - start[:, 0]) / (stop[:, 1] - start[:, 1])
            meets = (row - start[:, 1]) * slope + start[:, 0]
        along = (abs(row - top) < _NEAR) & (column > left - _NEAR) & (column < right + _NEAR)
        between = (row > top - _NEAR) & (row < bottom + _NEAR)
        found |= np.where(level, along, (abs(meets - column) < _NEAR) & between)
        beside = ~level & (row >= top + _NEAR) & (row <= bottom + _NEAR)
        crossings += beside & (meets - column > _NEAR)
    return found | (crossings % 2 == 1)


class _Reading:
    """The positions at which the features are read.

    Args:
        x: ``(N, C, H, W)``.
        rois: regions, ``(regions, 8)``.
        scale: cells of the features per pixel.
        height: height of the result.
        width: width of the result.

    Attributes:
        matrices: ``(regions, 3, 3)``.
        mask: whether a position is in the region and the features, ``(regions, height * width)``.
    """

    def __init__(self, x: Any, rois: Any, scale: float, height: int, width: int) -> None:
        corners = scaled(rois, scale).reshape(-1, 4, 2)
        self._height, self._width = x.shape[2:]
        self.matrices = _matrices(corners, height, width)
        column, row = _sources(self.matrices, height, width)
        self.mask = _inside(corners, column, row)
        for place, size in ((column, self._width), (row, self._height)):
            self.mask &= (place > _NEAR - 0.5) & (place < size - 0.5 - _NEAR)
        self._column = np.clip(np.where(self.mask, column, 0), 0, self._width - 1)
        self._row = np.clip(np.where(self.mask, row, 0), 0, self._height - 1)

    def corners(self, part: slice) -> Iterator[tuple[Numbers, Numbers]]:
        """For each of the four cells around the places of some regions: numbers and weights."""
        column, row = self._column[part], self._row[part]
        left, top = np.floor(column), np.floor(row)
        for down in (0, 1):
            for right in (0, 1):
                i = np.minimum(top + down, self._height - 1).astype(np.int64)
                j = np.minimum(left + right, self._width - 1).astype(np.int64)
                weight = (row - top if down else 1 - row + top) * (
                    column - left if right else 1 - column + left
                )
                yield i * self._width + j, weight * self.mask[part]


@op(
    "roi_perspective_transform",
    inputs="X ROIs ROIs@LOD",
    outputs="Out Mask TransformMatrix Out2InIdx Out2InWeights",
    infer=_infer,
    samples=_samples,
)
def roi_perspective_transform(
    xp: Any,
    x: Any,
    rois: Any,
    lod: Lod,
    *,
    transformed_height: int = 1,
    transformed_width: int = 1,
    spatial_scale: float = 1.0,
) -> tuple[Any, ...]:
    """Regions between four corners as upright images, with masks and matrices.

    ``Out`` and ``Mask`` are 0 outside of a region or of the features. ``TransformMatrix`` maps
    ``(column, row, 1)`` of ``Out`` to the features. The other two outputs, which Paddle fills on
    GPUs only, are empty. Source: Paddle op ``roi_perspective_transform``; Sun and others, 2018
    (TextNet).
    """
    size = (transformed_height, transformed_width)
    reading = _Reading(x, rois, spatial_scale, *size)
    out = xp.zeros((len(rois), x.shape[1], size[0] * size[1]), x.dtype)
    for image, part in images(lod, None):
        flat = x[image].reshape(x.shape[1], -1)
        for number, weight in reading.corners(part):
            read = flat[:, xp.asarray(number)] * xp.asarray(weight.astype(x.dtype))
            out[part] += read.swapaxes(0, 1)
    mask = xp.asarray(reading.mask.astype(np.int32)).reshape(len(rois), 1, *size)
    matrices = xp.asarray(reading.matrices.reshape(-1, 9))
    unused = xp.zeros(0, np.int32), xp.zeros(0, x.dtype)
    return out.reshape(len(rois), -1, *size), mask, matrices, *unused


@roi_perspective_transform.grad(
    "X", "ROIs", "ROIs@LOD", "Out2InIdx", "Out2InWeights", "Out@GRAD", outputs="X@GRAD",
    dense=True,
)  # fmt: skip
def roi_perspective_transform_grad(
    xp: Any,
    x: Any,
    rois: Any,
    lod: Lod,
    _: Any,
    __: Any,
    d_out: Any,
    *,
    transformed_height: int = 1,
    transformed_width: int = 1,
    spatial_scale: float = 1.0,
) -> Any:
    """The gradient of ``X``; regions have none."""
    reading = _Reading(x, rois, spatial_scale, transformed_height, transformed_width)
    d_x = xp.zeros((x.shape[0], x.shape[2] * x.shape[3], x.shape[1]), x.dtype)
    for image, part in images(lod, None):
        flow = d_out[part].reshape(part.stop - part.start, x.shape[1], -1).swapaxes(1, 2)
        for number, weight in reading.corners(part):
            shares = flow * xp.asarray(weight.astype(x.dtype))[..., None]
            add_at(xp, d_x[image], xp.asarray(number), shares)
    return d_x.swapaxes(1, 2).reshape(x.shape)
