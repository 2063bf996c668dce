"""``roi_align``: means of interpolated values in regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._boxes import Numbers
from dpexec.engine.ops._rois import boundaries, images, infer_pooled, pooled, pooled_grad, scaled


def _infer(
    x: Spec,
    rois: Spec,
    lod: Spec | None,
    offsets: Spec | None,
    *,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
) -> Spec:
    lod, counted = (None, boundaries(offsets)) if offsets else (lod, None)
    return infer_pooled(x, rois, lod, pooled_height, pooled_width, spatial_scale, counted)


def _samples(r: Any) -> list[Sample]:
    rois = np.array([[1.0, 1.5, 9.0, 11.0], [0.2, 0.1, 5.3, 4.0], [4.0, 2.0, 20.0, 15.0]])
    inputs = {"X": r.normal((2, 3, 6, 7)), "ROIs": rois, "ROIs@LOD": Lod([[0, 1, 3]])}
    pooled = {"spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 3}
    return [
        Sample(inputs, pooled, grad=("X",)),
        Sample(inputs, pooled | {"sampling_ratio": 2}, grad=("X",)),
        Sample(inputs, {"spatial_scale": 0.25}, grad=("X",)),
        Sample(inputs, pooled | {"spatial_scale": 1.0, "sampling_ratio": 2}, grad=("X",)),
    ]


def _weights(
    starts: Numbers, ends: Numbers, size: int, bins: int, sampling_ratio: int, aligned: bool
) -> Numbers:
    """How much every row counts in every bin of a region, ``(regions, bins, size)``.

    Args:
        starts: of the regions.
        ends: of the regions.
        size: number of rows.
        bins: per region.
        sampling_ratio: points per bin; with 0 or less as many as a bin has rows.
        aligned: whether regions may be smaller than a pixel.
    """
    lengths = ends - starts if aligned else np.maximum(ends - starts, 1)
    counts = np.full(len(starts), sampling_ratio)
    if sampling_ratio <= 0:
        counts = np.maximum(np.ceil(lengths / bins), 0).astype(np.int64)
    kind, point = starts.dtype, np.arange(counts.max(initial=1))
    # Rounded as Paddle rounds it: what lies at the edge of the image counts, what lies beyond not.
    length, points = (lengths / bins)[:, None, None], np.maximum(counts, 1)[:, None, None]
    inside = (point + 0.5).astype(kind) * length / points.astype(kind)
    places = starts[:, None, None] + np.arange(bins, dtype=kind)[:, None] * length + inside
    counted = (point < counts[:, None])[:, None] & (places >= -1) & (places <= size)
    near = 1 - abs(np.clip(places, 0, size - 1)[..., None] - np.arange(size))
    weights = np.maximum(near, 0) * counted[..., None]
    found: Numbers = weights.sum(axis=2) / points
    return found.astype(starts.dtype)


def _both(
    rois: Any, shape: tuple[int, ...], scale: float, bins: tuple[int, int], *how: Any
) -> tuple[Numbers, Numbers]:
    """The weights of rows and of columns; ``how`` is the sampling ratio, and whether aligned."""
    regions = scaled(rois, scale)
    left, top, right, bottom = (regions - regions.dtype.type(0.5 if how[1] else 0)).T
    rows = _weights(top, bottom, shape[2], bins[0], *how)
    return rows, _weights(left, right, shape[3], bins[1], *how)


@op(
    "roi_align",
    inputs="X ROIs ROIs@LOD? RoisLod?",
    infer=_infer,
    samples=_samples,
)
def roi_align(
    xp: Any,
    x: Any,
    rois: Any,
    lod: Lod | None,
    offsets: Any,
    *,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Any:
    """A map ``(pooled_height, pooled_width)`` for every region ``(left, top, right, bottom)``.

    A bin of it is the mean of points of the region that are interpolated between pixels. Regions
    are sequences, one for each image. With ``aligned``, which later versions of Paddle have, a
    pixel's number is its middle, and regions may be smaller than a pixel. Source: Paddle op
    ``roi_align``; He and others, 2017 (Mask R-CNN).
    """
    bins = (pooled_height, pooled_width)
    rows, columns = _both(rois, x.shape, spatial_scale, bins, sampling_ratio, aligned)
    out = xp.empty((len(rois), x.shape[1], *bins), x.dtype)
    for image, part in images(lod, offsets):
        out[part] = pooled(x[image], xp.asarray(rows[part]), xp.asarray(columns[part]))
    return out


@roi_align.grad("X", "ROIs", "ROIs@LOD?", "RoisLod?", "Out@GRAD", outputs="X@GRAD", dense=True)
def roi_align_grad(
    xp: Any,
    x: Any,
    rois: Any,
    lod: Lod | None,
    offsets: Any,
    d_out: Any,
    *,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Any:
    """By ``X`` alone: regions are where they are."""
    bins = (pooled_height, pooled_width)
    rows, columns = _both(rois, x.shape, spatial_scale, bins, sampling_ratio, aligned)
    d_x = xp.zeros_like(x)
    for image, part in images(lod, offsets):
        weights = xp.asarray(rows[part]), xp.asarray(columns[part])
        d_x[image] = pooled_grad(d_out[part], *weights)
    return d_x
