"""Training targets of anchors, for ``rpn_target_assign`` and ``retinanet_target_assign``."""

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
"""An anchor is a best anchor of a box if its overlap is within this of the largest overlap."""

OUTPUTS = "LocationIndex ScoreIndex TargetBBox TargetLabel BBoxInsideWeight"
"""Output slots; each has offsets of its own."""

Pick = Callable[[Ints, int], Ints]


class Assigned(NamedTuple):
    """The roles of an image's anchors, given by their numbers.

    Attributes:
        positives: anchors that are to predict a box.
        negatives: anchors that are to predict background.
        fakes: placeholders with weight 0 for positive anchors that became negative.
        nearest: for every anchor the box that it overlaps most.
    """

    positives: Ints
    negatives: Ints
    fakes: Ints
    nearest: Ints


class Targets(NamedTuple):
    """One image's rows of the outputs, in the order of :data:`OUTPUTS`."""

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
        pick_positives: selects among the positive anchors; its second argument is not used.
        pick_negatives: selects among the negative anchors, given the number of positive ones.

    Returns:
        The roles of the anchors.

    Source: Ren et al., 2015, Faster R-CNN, section 3.1.2, as in Paddle: an anchor that is both
    positive and negative becomes negative, and the first positive anchor replaces it with weight 0.
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
    """The outputs for one image.

    Args:
        anchors: all anchors.
        inside: numbers of the anchors that took part; ``assigned`` refers to positions in it.
        boxes: the ground truth boxes.
        assigned: see :func:`assign`.
        classes: classes of ``boxes``; 1 by default.
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
        images: the targets of each image.
        anchors: anchors per image; anchors of later images have higher numbers.
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
