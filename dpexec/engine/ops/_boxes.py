"""Boxes, ``(left, top, right, bottom)``: helpers of object detection operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Spec, dims_match, require
from dpexec.engine.ops._shapes import require_float

Numbers = np.ndarray[Any, Any]


def require_boxes(spec: Spec, name: str, rank: int = 2) -> None:
    """Check that a variable holds four floats per box."""
    require_float(spec, name)
    require(
        spec.rank == rank and dims_match(spec.shape[-1], 4),
        f"{name} {spec} must hold four numbers per box, in {rank} dimensions",
    )


def to_host(array: Any) -> Numbers:
    """Copy an array to the host, where box by box algorithms run."""
    found: Numbers = array if isinstance(array, np.ndarray) else array.get()
    return found


def sides(boxes: Any, extra: float) -> tuple[Any, Any]:
    """Widths and heights.

    Args:
        boxes: ``(..., 4)``.
        extra: 1 where the last pixel belongs to the box, 0 where coordinates are continuous.
    """
    return boxes[..., 2] - boxes[..., 0] + extra, boxes[..., 3] - boxes[..., 1] + extra


def overlaps(xp: Any, x: Any, y: Any, extra: float) -> Any:
    """The area of the intersection of boxes.

    Args:
        xp: ``numpy`` or ``cupy``.
        x: ``(..., 4)``.
        y: ``(..., 4)``, of shapes that broadcast.
        extra: as for :func:`sides`.
    """
    low, high = xp.maximum(x[..., :2], y[..., :2]), xp.minimum(x[..., 2:], y[..., 2:])
    shared = xp.maximum(high - low + extra, 0)
    return shared[..., 0] * shared[..., 1]


def intersection_over_union(xp: Any, x: Any, y: Any, extra: float) -> Any:
    """Intersection over union of all pairs.

    Args:
        xp: ``numpy`` or ``cupy``.
        x: ``(N, 4)``.
        y: ``(M, 4)``.
        extra: as for :func:`sides`.

    Returns:
        ``(N, M)``.
    """
    shared = overlaps(xp, x[:, None], y[None], extra)
    areas = [width * height for width, height in (sides(x, extra), sides(y, extra))]
    covered = areas[0][:, None] + areas[1][None] - shared
    return shared / xp.where(covered == 0, 1, covered).astype(covered.dtype, copy=False)
