"""Polygons as masks of pixels.

Pixels inside are found as in the COCO API: the border is traced in steps of a fifth of a pixel.
Where it crosses the middle of a column, all pixels below switch between inside and outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpexec.engine.ops._boxes import Numbers

_STEPS = 5
"""Steps per pixel along a border."""


def polygon_mask(points: Numbers, size: int) -> Numbers:
    """The mask of the pixels of a square image that lie in a polygon.

    Args:
        points: its corners, ``(corners, 2)``: columns and rows.
        size: height and width of the image.

    Returns:
        bool ``(size, size)``.
    """
    corners = (_STEPS * points.astype(np.float64) + 0.5).astype(np.int64)
    following = np.roll(corners, -1, axis=0)
    walk = np.concatenate([_line(*ends) for ends in zip(corners, following, strict=True)])
    before, after = walk[:-1], walk[1:]
    crossing = before[:, 0] != after[:, 0]
    low = np.minimum(before, after)[crossing].astype(np.float64)
    column, row = ((low + 0.5) / _STEPS - 0.5).T
    counted = (np.floor(column) == column) & (column >= 0) & (column < size)
    row = np.ceil(np.clip(row[counted], 0, size))
    changes = np.bincount((column[counted] * size + row).astype(np.int64), minlength=size * size)
    inside = np.cumsum(changes[: size * size]) % 2 == 1
    return inside.reshape(size, size).T


def _line(start: Numbers, stop: Numbers) -> Numbers:
    """The points of a line, both ends included, a step at a time along its longer axis."""
    distance = np.abs(stop - start)
    longer = 0 if distance[0] >= distance[1] else 1
    backwards = start[longer] > stop[longer]
    if backwards:
        start, stop = stop, start
    count = distance[longer]
    steps = np.arange(count + 1)
    slope = (stop - start)[1 - longer] / count if count else 0.0
    points = np.empty((count + 1, 2), np.int64)
    points[:, longer] = start[longer] + steps
    points[:, 1 - longer] = start[1 - longer] + slope * steps + 0.5
    return points[::-1] if backwards else points


def box_mask(polygons: Sequence[Numbers], box: Numbers, size: int) -> Numbers:
    """The mask of one or more polygons within a box, scaled to a square image.

    Args:
        polygons: ``(corners, 2)`` each.
        box: left, top, right, bottom.
        size: height and width of the mask.

    Returns:
        bool ``(size, size)``.
    """
    extent = np.maximum(box[2:] - box[:2], 1)
    inside = np.zeros((size, size), bool)
    for points in polygons:
        inside |= polygon_mask((points - box[:2]) * size / extent, size)
    return inside
