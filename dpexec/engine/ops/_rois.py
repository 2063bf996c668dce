"""Regions of interest: shared by operators that pool over them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Spec, dims_match, require
from dpexec.engine.ops._boxes import Numbers, require_boxes, to_host
from dpexec.engine.ops._sequences import sequence_count
from dpexec.engine.ops._shapes import require_float, require_same_dtype


def require_regions(
    x: Spec, rois: Spec, lod: Spec | None, pooled_height: int, pooled_width: int
) -> None:
    """Check the feature maps, and the regions in them: a sequence of regions per image."""
    require_float(x)
    require(x.rank == 4, f"X {x} must be (N, C, H, W)")
    require_boxes(rois, "ROIs")
    require_same_dtype(x, rois, "X and ROIs")
    require(
        dims_match(sequence_count(lod), x.shape[0]),
        f"ROIs {rois} must have a sequence for each image of X {x}, but they have "
        f"{sequence_count(lod)}",
    )
    require(
        min(pooled_height, pooled_width) > 0,
        f"pooled_height and pooled_width must be positive, but are {pooled_height}, {pooled_width}",
    )


def infer_pooled(
    x: Spec,
    rois: Spec,
    lod: Spec | None,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float = 1.0,
    counted: int | None = None,
) -> Spec:
    """Check the inputs; returns the spec of a small map for every region.

    Args:
        x: the feature maps of all images.
        rois: the regions.
        lod: the images as sequences of regions, unless a tensor says which are whose.
        pooled_height: of a small map.
        pooled_width: of a small map.
        spatial_scale: from regions to features.
        counted: for how many images that tensor says it; -1 where only a run tells.
    """
    require(spatial_scale > 0, f"spatial_scale must be positive, but is {spatial_scale}")
    require(
        counted is None or dims_match(counted, x.shape[0]),
        f"regions must be given for each image of X {x}, but are for {counted} images",
    )
    require_regions(x, rois, lod, pooled_height, pooled_width)
    return Spec((rois.shape[0], x.shape[1], pooled_height, pooled_width), x.dtype)


def boundaries(offsets: Spec) -> int:
    """How many images a tensor of offsets is for; -1 where only a run tells."""
    return -1 if min(offsets.shape, default=0) < 0 else math.prod(offsets.shape) - 1


def images(lod: Lod | None, offsets: Any) -> Iterator[tuple[int, slice]]:
    """The images that have regions, each with the positions of its regions.

    Args:
        lod: the images as sequences of regions.
        offsets: a tensor with the offsets of the images, if there is no ``lod``.

    Raises:
        ValueError: both are missing.
    """
    if offsets is not None:
        lod = Lod([to_host(offsets).ravel()])
    if not lod:
        raise ValueError("ROIs hold no sequences, so which image they are of is unknown")
    for image, (start, stop) in enumerate(lod.spans()):
        if stop > start:
            yield image, slice(start, stop)


def pooled(x: Any, rows: Any, columns: Any) -> Any:
    """Weighted sums over regions of an image; a weight is a row's times a column's weight.

    Args:
        x: ``(C, H, W)``.
        rows: ``(regions, P, H)``.
        columns: ``(regions, Q, W)``.

    Returns:
        ``(regions, C, P, Q)``.
    """
    regions, height = rows.shape[:2]
    by_rows = (rows.reshape(-1, rows.shape[2]) @ x).reshape(len(x), regions, height, -1)
    return (by_rows @ columns.swapaxes(1, 2)).swapaxes(0, 1)


def pooled_grad(d_out: Any, rows: Any, columns: Any) -> Any:
    """The gradient of :func:`pooled` by ``x``, ``(C, H, W)``."""
    by_rows = d_out.swapaxes(0, 1) @ columns
    channels, regions, height, width = by_rows.shape
    flat = rows.reshape(-1, rows.shape[2])
    return flat.T @ by_rows.reshape(channels, regions * height, width)


def scaled(rois: Any, scale: float) -> Numbers:
    """Regions in the coordinates of the features, on the host."""
    found = to_host(rois)
    return found * found.dtype.type(scale)
