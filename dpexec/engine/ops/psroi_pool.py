"""``psroi_pool``: means of regions; every bin reads its own channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import Numbers, to_host
from dpexec.engine.ops._rois import images, infer_pooled

_SMALLEST = 0.1
"""The least height and width of a region, in cells."""


def _infer(
    x: Spec,
    rois: Spec,
    lod: Spec | None,
    *,
    output_channels: int,
    pooled_height: int = 1,
    pooled_width: int = 1,
) -> Spec:
    require(output_channels > 1, f"output_channels is {output_channels}, but must be more than 1")
    made = infer_pooled(x, rois, lod, pooled_height, pooled_width)
    channels = output_channels * pooled_height * pooled_width
    require(
        dims_match(x.shape[1], channels),
        f"X {x} must have {channels} channels, output_channels * pooled_height * pooled_width",
    )
    return made.replace(shape=(made.shape[0], output_channels, *made.shape[2:]))


def _samples(r: Any) -> list[Sample]:
    rois = np.array([[1.0, 1.4, 9.0, 11.0], [0.2, 0.1, 5.3, 4.0], [4.0, 2.0, 20.0, 15.0]])
    inputs = {"X": r.normal((2, 12, 6, 7)), "ROIs": rois, "ROIs@LOD": Lod([[0, 1, 3]])}
    attrs = {"output_channels": 2, "pooled_height": 2, "pooled_width": 3}
    return [
        Sample(inputs, attrs | {"spatial_scale": 0.5}, grad=("X",)),
        Sample(inputs, attrs, grad=("X",)),
        Sample(inputs, {"output_channels": 12, "spatial_scale": 0.25}, grad=("X",)),
    ]


def _means(starts: Numbers, ends: Numbers, scale: float, size: int, bins: int) -> Numbers:
    """The weight of every row in every bin of a region, ``(regions, bins, size)``."""
    kind = starts.dtype.type
    first, last = (np.floor(abs(edge) + kind(0.5)) * np.sign(edge) for edge in (starts, ends))
    first, last = first * kind(scale), (last + 1) * kind(scale)
    step = (np.maximum(last - first, kind(_SMALLEST)) / kind(bins))[:, None]
    number = np.arange(bins, dtype=starts.dtype)
    low = np.clip(np.floor(number * step + first[:, None]), 0, size)[..., None]
    high = np.clip(np.ceil((number + 1) * step + first[:, None]), 0, size)[..., None]
    row = np.arange(size)
    inside = (row >= low) & (row < high)
    return inside / np.maximum(high - low, 1).astype(starts.dtype)


def _both(
    xp: Any, rois: Any, shape: tuple[int, ...], scale: float, bins: tuple[int, int]
) -> tuple[Any, Any]:
    """The weights of rows and of columns."""
    left, top, right, bottom = to_host(rois).T
    rows = _means(top, bottom, scale, shape[2], bins[0])
    return xp.asarray(rows), xp.asarray(_means(left, right, scale, shape[3], bins[1]))


@op(
    "psroi_pool",
    inputs="X ROIs ROIs@LOD",
    infer=_infer,
    samples=_samples,
    operand_ulps=2,
)
def psroi_pool(
    xp: Any,
    x: Any,
    rois: Any,
    lod: Lod,
    *,
    output_channels: int,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
) -> Any:
    """A map ``(pooled_height, pooled_width)`` for every region ``(left, top, right, bottom)``.

    A bin is the mean of a part of the region in the bin's own channel. Each sequence has the
    regions of an image. Source: Paddle op ``psroi_pool``; Dai and others, 2016 (R-FCN).
    """
    bins = (pooled_height, pooled_width)
    rows, columns = _both(xp, rois, x.shape, spatial_scale, bins)
    out = xp.empty((len(rois), output_channels, *bins), x.dtype)
    for image, part in images(lod, None):
        maps = x[image].reshape(output_channels, *bins, *x.shape[2:])
        by_columns = maps @ columns[part].transpose(1, 2, 0)
        weighted = by_columns * rows[part].transpose(1, 2, 0)[:, None]
        out[part] = xp.moveaxis(weighted.sum(axis=3), -1, 0)
    return out


@psroi_pool.grad("X", "ROIs", "ROIs@LOD", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=2)
def psroi_pool_grad(
    xp: Any,
    x: Any,
    rois: Any,
    lod: Lod,
    d_out: Any,
    *,
    output_channels: int,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
) -> Any:
    """The gradient of ``X``; regions have none."""
    bins = (pooled_height, pooled_width)
    rows, columns = _both(xp, rois, x.shape, spatial_scale, bins)
    d_x = xp.zeros_like(x)
    for image, part in images(lod, None):
        flows = xp.moveaxis(d_out[part], 0, -1)[:, :, :, None]
        weighted = flows * rows[part].transpose(1, 2, 0)[:, None]
        d_x[image] = (weighted @ columns[part].transpose(1, 0, 2)).reshape(x.shape[1:])
    return d_x
