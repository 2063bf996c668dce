"""Areas of polygons and of their intersections."""

from __future__ import annotations

import numpy as np

from dpexec.engine.ops._boxes import Numbers


def polygon_overlaps(polygons: Numbers, other: Numbers) -> Numbers:
    """Intersection over union of polygons with another one; 0 if one of them has no area.

    Args:
        polygons: corners, ``(M, 2 * P)``: column and row of each.
        other: ``(2 * P,)``.
    """
    found = np.zeros(len(polygons), polygons.dtype)
    shape = other.reshape(1, -1, 2)
    shapes = polygons.reshape(len(polygons), *shape.shape[1:])
    near = (shapes.max(axis=1) > shape.min(axis=1)) & (shapes.min(axis=1) < shape.max(axis=1))
    rows = np.flatnonzero(near.all(axis=1))
    areas, area = _areas(shapes[rows]), _areas(shape)
    shared = _shared(shapes[rows].astype(np.float64), shape.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = shared / (areas + area - shared)
    found[rows] = np.where((areas == 0) | (area == 0) | (shared == 0), 0, parts)
    return found


def _areas(shapes: Numbers) -> Numbers:
    """Areas of polygons ``(M, P, 2)``, by the shoelace formula."""
    following = np.roll(shapes, -1, axis=1)
    crossed = shapes[..., 0] * following[..., 1] - shapes[..., 1] * following[..., 0]
    return np.abs(crossed.sum(axis=1) / 2)


def _shared(shapes: Numbers, shape: Numbers) -> Numbers:
    """The area of the intersections of polygons ``(M, P, 2)`` with another one ``(1, P, 2)``.

    The plane is cut at all levels where edges end or cross. Between two levels the intersection
    consists of trapezoids, whose areas are the width halfway times the height. A point is inside a
    polygon if a ray to the left crosses its edges an odd number of times.
    """
    starts = np.concatenate([shapes, np.broadcast_to(shape, shapes.shape)], axis=1)
    stops = np.concatenate(
        [np.roll(shapes, -1, axis=1), np.broadcast_to(np.roll(shape, -1, axis=1), shapes.shape)],
        axis=1,
    )
    levels = np.concatenate([starts[..., 1], _crossings(starts, stops)], axis=1)
    levels.sort(axis=1)
    heights, halfway = np.diff(levels, axis=1), (levels[:, 1:] + levels[:, :-1]) / 2
    low, high = np.minimum(starts, stops), np.maximum(starts, stops)
    level = halfway[:, :, None]
    met = (low[:, None, :, 1] < level) & (level < high[:, None, :, 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (stops[..., 0] - starts[..., 0]) / (stops[..., 1] - starts[..., 1])
        column = starts[:, None, :, 0] + (level - starts[:, None, :, 1]) * slope[:, None]
    column = np.where(met, column, np.inf)
    order = np.argsort(column, axis=2)
    column, met = (np.take_along_axis(part, order, axis=2) for part in (column, met))
    first = order < shapes.shape[1]
    inside = [np.cumsum(met & own, axis=2) % 2 == 1 for own in (first, ~first)]
    counted = (inside[0] & inside[1])[..., :-1]
    left = np.where(met, column, 0)
    widths = np.where(counted, left[..., 1:] - left[..., :-1], 0).sum(axis=2)
    found: Numbers = (widths * heights).sum(axis=1)
    return found


def _crossings(starts: Numbers, stops: Numbers) -> Numbers:
    """Levels at which edges cross between their ends, padded with levels at which edges begin.

    Args:
        starts: ``(M, edges, 2)``.
        stops: likewise.

    Returns:
        ``(M, crossings)``, with the largest number of crossings of any polygon.
    """
    i, j = np.triu_indices(starts.shape[1], 1)
    one, two = (stops - starts)[:, i], (stops - starts)[:, j]
    gap = starts[:, j] - starts[:, i]
    with np.errstate(divide="ignore", invalid="ignore"):
        along = _cross(gap, two) / _cross(one, two)
        beside = _cross(gap, one) / _cross(one, two)
    meet = (along > 0) & (along < 1) & (beside > 0) & (beside < 1)
    rows = starts[:, i, 1] + np.where(meet, along, 0) * one[..., 1]
    most = int(meet.sum(axis=1).max(initial=0))
    return np.take_along_axis(rows, np.argsort(~meet, axis=1)[:, :most], axis=1)


def _cross(a: Numbers, b: Numbers) -> Numbers:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
