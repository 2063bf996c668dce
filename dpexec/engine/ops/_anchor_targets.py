"""What anchors are to predict: shared by ``rpn_target_assign`` and ``retinanet_target_assign``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Spec
from dpexec.engine.ops._boxes import require_boxes
from dpexec.engine.ops._proposals import Boxes, deltas, joined, require_image_info
from dpexec.engine.ops._sequences import Ints, offsets_spec, sequence_count

_NEAR = 1e-5
"""An anchor overlaps a box as much as the best one does if it is that near to it."""

OUTPUTS = "LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight"
"""Output slots; each has offsets of its own."""

Pick = Callable[[Ints, int], Ints]


class Assigned(NamedTuple):
    """Numbers of anchors of an image.

    Attributes:
        positives: those that are to find a box.
        negatives: those that are to find none.
        fakes: positive ones that stand in, with weight 0, for those that became negative.
        nearest: for every anchor the box that it overlaps most.
    """

    positives: Ints
    negatives: Ints
    fakes: Ints
    nearest: Ints


class Targets(NamedTuple):
    """Rows of the outputs that one image has, in the order of :data:`OUTPUTS`."""

    locations: Ints
    scores: Ints
    deltas: Boxes
    labels: Ints
    weights: Boxes


def infer(anchor: Spec, boxes: Spec, lod: Spec | None, info: Spec) -> tuple[Spec, ...]:
    """Specs of :data:`OUTPUTS`, then of their offsets."""
    require_boxes(anchor, "Anchor")
    require_boxes(boxes, "GtBoxes")
    require_image_info(info)
    numbers = Spec((-1,), VarType.INT32)
    rows = Spec((-1, 4), anchor.dtype)
    labels = numbers.replace(shape=(-1, 1))
    return (numbers, numbers, rows, labels, rows, *[offsets_spec(sequence_count(lod))] * 5)


def assign(
    found: Boxes, positive: float, negative: float, pick_positives: Pick, pick_negatives: Pick
) -> Assigned:
    """Tell positive from negative anchors.

    Args:
        found: overlap of each anchor with each box.
        positive: overlap from which on an anchor is positive; the best one of a box always is.
        negative: overlap below which it is negative, even if it was positive.
        pick_positives: leaves some of the positive ones out; the number is ignored.
        pick_negatives: alike, and gets the number of positive ones.

    Returns:
        Who is what.

    Source: Ren et al., 2015, Faster R-CNN, section 3.1.2, as Paddle does it: an anchor that is
    both ends as a negative one, and the first positive one takes its place without weight.
    """
    best = found.max(axis=1, initial=-np.inf)
    most = found.max(axis=0, initial=-np.inf)
    is_best = (np.abs(found - most) < _NEAR).any(axis=1)
    positives = pick_positives(np.flatnonzero(is_best | (best >= np.float32(positive))), 0)
    below = np.flatnonzero(best < np.float32(negative))
    negatives = pick_negatives(below, len(positives))
    fakes = np.repeat(positives[:1], np.isin(negatives, positives).sum())
    nearest = found.argmax(axis=1) if found.shape[1] else np.zeros(len(found), np.int64)
    left = np.setdiff1d(positives, negatives)
    return Assigned(left, np.sort(negatives), fakes, nearest)


def targets(
    anchors: Boxes, inside: Ints, boxes: Boxes, assigned: Assigned, classes: Ints | None = None
) -> Targets:
    """What the outputs hold for an image.

    Args:
        anchors: all of them.
        inside: numbers of those that took part, which ``assigned`` counts.
        boxes: those to be found.
        assigned: see :func:`assign`.
        classes: of ``boxes``; 1 by default.
    """
    locations = np.concatenate([assigned.fakes, assigned.positives])
    scores = np.concatenate([assigned.positives, assigned.negatives])
    labels = np.zeros((len(scores), 1), np.int32)
    labels[: len(assigned.positives), 0] = (
        1 if classes is None else classes[assigned.nearest[assigned.positives]]
    )
    weights = np.ones((len(locations), 4), anchors.dtype)
    weights[: len(assigned.fakes)] = 0
    change = deltas(anchors[inside[locations]], boxes[assigned.nearest[locations]])
    return Targets(inside[locations], inside[scores], change, labels, weights)


def outputs(xp: Any, images: list[Targets], anchors: int) -> tuple[Any, ...]:
    """Values of :data:`OUTPUTS`, then their offsets.

    Args:
        xp: ``numpy`` or ``cupy``.
        images: what each image has.
        anchors: how many anchors there are; those of later images count on.
    """
    counted = [
        found._replace(
            locations=(found.locations + i * anchors).astype(np.int32),
            scores=(found.scores + i * anchors).astype(np.int32),
        )
        for i, found in enumerate(images)
    ]
    values: list[Any] = []
    lods: list[Lod] = []
    for parts in zip(*counted, strict=True):
        value, lod = joined(xp, parts)
        values.append(value)
        lods.append(lod)
    return (*values, *lods)
