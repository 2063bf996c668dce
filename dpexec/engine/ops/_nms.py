"""Non-maximum suppression of boxes, shared by detection operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Spec, dims_match, require
from dpexec.engine.ops._boxes import Numbers, overlaps, sides
from dpexec.engine.ops._polygons import polygon_overlaps
from dpexec.engine.ops._sequences import offsets_spec
from dpexec.engine.ops._shapes import require_float

_WIDTHS = (4, 8, 16, 24, 32)
"""Numbers per box: two corners of an upright one, or all corners of a polygon."""


def infer_found(boxes: Spec, scores: Spec, polygons: bool = True) -> tuple[Spec, Spec]:
    """The specs of detections: rows of label, score and box, and their offsets.

    Args:
        boxes: the candidate boxes.
        scores: scores of the boxes.
        polygons: whether boxes may be polygons.
    """
    for name, spec in (("BBoxes", boxes), ("Scores", scores)):
        require_float(spec, name)
    known = _WIDTHS if polygons and scores.rank == 3 else _WIDTHS[:1]
    require(
        boxes.rank == 3 and any(dims_match(boxes.shape[2], width) for width in known),
        f"BBoxes {boxes} must have {' or '.join(map(str, known))} numbers per box, in 3 dimensions",
    )
    place = 1 if scores.rank == 2 else 2
    require(
        scores.rank in (2, 3)
        and dims_match(boxes.shape[0], scores.shape[0])
        and dims_match(boxes.shape[1], scores.shape[1 if place == 1 else 2]),
        f"Scores {scores} must be (N, classes, M), or (rows, classes) for BBoxes "
        f"(rows, classes, 4), but BBoxes are {boxes}",
    )
    sequences = scores.shape[0] if scores.rank == 3 else -1
    columns = boxes.shape[2] + 2 if boxes.shape[2] > 0 else -1
    return Spec((-1, columns), boxes.dtype, lod_level=1), offsets_spec(sequences)


def index_spec(found: Spec) -> Spec:
    """The spec of the input positions of the rows of ``found``."""
    return found.replace(shape=(-1, 1), dtype=VarType.INT32)


def candidates(scores: Numbers, threshold: float, limit: int) -> Numbers:
    """Boxes with scores above a threshold, best first, ``limit`` at most if it is not negative."""
    above = np.flatnonzero(scores > threshold)
    order = above[np.argsort(-scores[above], kind="stable")]
    return order[:limit] if limit > -1 else order


def shared_parts(boxes: Numbers, box: Numbers, extra: float) -> Numbers:
    """Intersection over union of boxes, or polygons, with another one.

    Args:
        boxes: ``(M, width)``.
        box: ``(width,)``; 4 numbers are left, top, right and bottom, more are corners.
        extra: 1 where the last pixel belongs to a box; has no effect on polygons.
    """
    return jaccard(boxes, box, extra) if len(box) == 4 else polygon_overlaps(boxes, box)


def jaccard(boxes: Numbers, others: Numbers, extra: float) -> Numbers:
    """Intersection over union of pairs; 0 if boxes do not touch, or have no area."""
    shared = overlaps(np, boxes, others, extra)
    low, high = np.maximum(boxes[..., :2], others[..., :2]), np.minimum(
        boxes[..., 2:], others[..., 2:]
    )  # fmt: skip
    covered = _area(boxes, extra) + _area(others, extra) - shared
    apart = (low > high).any(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(apart, 0, shared / covered)


def _area(boxes: Numbers, extra: float) -> Numbers:
    width, height = sides(boxes, extra)
    return np.where((width < extra) | (height < extra), 0, width * height)


def suppressed(
    boxes: Numbers, order: Numbers, threshold: float, eta: float, extra: float, limit: int = -1
) -> Numbers:
    """The boxes that no better box overlaps by more than a threshold.

    Args:
        boxes: ``(M, width)``, as for :func:`shared_parts`.
        order: numbers of the boxes to consider, best first.
        threshold: of the intersection over union.
        eta: if below 1, the threshold is multiplied by it after each box kept, while above 0.5.
        extra: 1 where the last pixel belongs to a box.
        limit: how many boxes are enough; negative: all.
    """
    chosen, kept = boxes[order], np.zeros(len(order), bool)
    worst = np.zeros(len(order), boxes.dtype)
    for position, box in enumerate(chosen):
        if limit >= 0 and kept.sum() == limit:
            break
        if not worst[position] <= threshold:  # NaN is suppressed, too
            continue
        kept[position] = True
        rest = slice(position + 1, None)
        with np.errstate(invalid="ignore"):
            np.maximum(worst[rest], shared_parts(chosen[rest], box, extra), out=worst[rest])
        if eta < 1 and threshold > 0.5:
            threshold *= eta
    return order[kept]


def best(found: list[tuple[int, Numbers, Numbers]], limit: int) -> list[tuple[int, Numbers]]:
    """The best boxes of all classes together.

    Args:
        found: per class its label, boxes and their scores.
        limit: how many boxes are kept; all if it is negative.

    Returns:
        The labels and the remaining boxes.
    """
    scores = np.concatenate([part for *_, part in found] or [np.zeros(0)])
    keep = np.ones(len(scores), bool)
    if -1 < limit < len(scores):
        keep[np.argsort(-scores, kind="stable")[limit:]] = False
    parts = np.split(keep, np.cumsum([len(part) for *_, part in found])[:-1])
    return [(label, rows[kept]) for (label, rows, _), kept in zip(found, parts, strict=False)]


def gathered(parts: list[Numbers], dtype: Any) -> tuple[Numbers, Lod]:
    """Rows of all images and their offsets; without detections a row of -1, as in Paddle."""
    lengths = [len(part) for part in parts]
    if not any(lengths):
        return np.full((1, 1), -1, dtype), Lod([[0, 1]])
    return np.concatenate(parts).astype(dtype), Lod.of_lengths([lengths])
