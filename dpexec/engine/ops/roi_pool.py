"""``roi_pool``: maxima in the bins of regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.runs import add_at
from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._boxes import Numbers
from dpexec.engine.ops._rois import boundaries, images, infer_pooled, scaled


def _infer(
    x: Spec,
    rois: Spec,
    lod: Spec | None,
    offsets: Spec | None,
    *,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
) -> tuple[Spec, Spec]:
    lod, counted = (None, boundaries(offsets)) if offsets else (lod, None)
    made = infer_pooled(x, rois, lod, pooled_height, pooled_width, spatial_scale, counted)
    return made, made.replace(dtype=VarType.INT64)


def _samples(r: Any) -> list[Sample]:
    rois = np.array([[1.0, 1.5, 9.0, 11.0], [0.2, 0.1, 5.3, 4.0], [4.0, 2.0, 20.0, 15.0]])
    inputs = {"X": r.distinct((2, 3, 6, 7)), "ROIs": rois, "ROIs@LOD": Lod([[0, 1, 3]])}
    pooled = {"pooled_height": 2, "pooled_width": 3}
    return [
        Sample(inputs, pooled | {"spatial_scale": 0.5}, grad=("X",)),
        Sample(inputs, pooled, grad=("X",)),
        Sample(inputs, {"spatial_scale": 0.25}, grad=("X",)),
    ]


def _spans(starts: Numbers, ends: Numbers, size: int, bins: int) -> tuple[Numbers, Numbers]:
    """First row of every bin of a region, and the one after the last, ``(regions, bins)`` each."""
    first, last = (np.floor(abs(edge) + 0.5) * np.sign(edge) for edge in (starts, ends))
    heights = np.maximum(last - first + 1, 1)[:, None] / starts.dtype.type(bins)
    number = np.arange(bins, dtype=starts.dtype)
    edges = np.floor(number * heights), np.ceil((number + 1) * heights)
    low, high = (np.clip(edge + first[:, None], 0, size).astype(np.int64) for edge in edges)
    return low, high


def _pixels(
    rois: Numbers, shape: tuple[int, ...], bins: tuple[int, int]
) -> tuple[Numbers, Numbers]:
    """The pixels of every bin, padded to rows of one length, and whether each pixel exists.

    Returns:
        ``(regions, bins, most)`` each, ``most`` being the size of the greatest bin.
    """
    left, top, right, bottom = rois.T
    grids = []
    for starts, ends, size, count in (
        (top, bottom, shape[2], bins[0]), (left, right, shape[3], bins[1]),
    ):  # fmt: skip
        low, high = _spans(starts, ends, size, count)
        place = low[..., None] + np.arange((high - low).max(initial=1))
        grids.append((np.minimum(place, size - 1), place < high[..., None]))
    (rows, in_rows), (columns, in_columns) = grids
    places = rows[:, :, None, :, None] * shape[3] + columns[:, None, :, None, :]
    there = in_rows[:, :, None, :, None] & in_columns[:, None, :, None, :]
    flat = (len(rois), bins[0] * bins[1], -1 if len(rois) else 1)
    return places.reshape(flat), there.reshape(flat)


@op(
    "roi_pool",
    inputs="X ROIs ROIs@LOD? RoisLod?",
    outputs="Out Argmax",
    infer=_infer,
    samples=_samples,
)
def roi_pool(
    xp: Any,
    x: Any,
    rois: Any,
    lod: Lod | None,
    offsets: Any,
    *,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
) -> tuple[Any, Any]:
    """A map ``(pooled_height, pooled_width)`` for every region ``(left, top, right, bottom)``.

    A bin is the greatest pixel of a part of the region, 0 if it has none; ``Argmax`` is the number
    of this pixel, or -1. Each sequence has the regions of an image. Source: Paddle op ``roi_pool``;
    Girshick, 2015 (Fast R-CNN).
    """
    bins, channels = (pooled_height, pooled_width), x.shape[1]
    regions = scaled(rois, spatial_scale)
    out = xp.zeros((len(rois), channels, *bins), x.dtype)
    greatest = xp.full(out.shape, -1, np.int64)
    for image, part in images(lod, offsets):
        flat = x[image].reshape(channels, -1)
        for number in range(part.start, part.stop):  # all at once would take much memory
            places, there = _pixels(regions[number : number + 1], x.shape, bins)
            chosen, real = xp.asarray(places[0]), xp.asarray(there[0])
            values = xp.where(real, flat[:, chosen], -np.inf)
            best = values.argmax(axis=2)[..., None]
            any_real = real.any(axis=1)
            found = xp.take_along_axis(values, best, axis=2)[..., 0]
            place = xp.take_along_axis(chosen[None], best, axis=2)[..., 0]
            out[number] = xp.where(any_real, found, 0).reshape(channels, *bins)
            greatest[number] = xp.where(any_real, place, -1).reshape(channels, *bins)
    return out, greatest


@roi_pool.grad(
    "X", "ROIs", "ROIs@LOD?", "RoisLod?", "Argmax", "Out@GRAD", outputs="X@GRAD", dense=True
)
def roi_pool_grad(
    xp: Any, x: Any, rois: Any, lod: Lod | None, offsets: Any, greatest: Any, d_out: Any
) -> Any:
    """The gradient of the greatest pixel of every bin; 0 elsewhere."""
    channels = x.shape[1]
    size = x.shape[2] * x.shape[3]
    d_x = xp.zeros((x.shape[0], channels * size), x.dtype)
    first = xp.arange(channels)[None, :, None] * size
    for image, part in images(lod, offsets):
        places = greatest[part].reshape(part.stop - part.start, channels, -1)
        flows = xp.where(places >= 0, d_out[part].reshape(places.shape), 0)
        add_at(xp, d_x[image], first + xp.maximum(places, 0), flows)
    return d_x.reshape(x.shape)
