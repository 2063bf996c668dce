"""``retinanet_detection_output``: the detections of a RetinaNet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import Numbers, require_boxes, to_host
from dpexec.engine.ops._nms import candidates, suppressed
from dpexec.engine.ops._proposals import clipped, joined, moved, require_image_info
from dpexec.engine.ops._sequences import offsets_spec
from dpexec.engine.ops._shapes import same_dims


def _infer(
    boxes: Sequence[Spec], scores: Sequence[Spec], anchors: Sequence[Spec], info: Spec
) -> tuple[Spec, Spec]:
    require_image_info(info)
    require(
        len(boxes) == len(scores) == len(anchors) > 0,
        f"there must be as many BBoxes, {len(boxes)}, as Scores, {len(scores)}, and Anchors, "
        f"{len(anchors)}: one for every level",
    )
    for box, score, anchor in zip(boxes, scores, anchors, strict=True):
        require_boxes(box, "BBoxes", 3)
        require_boxes(anchor, "Anchors")
        shape = (box.shape[0], box.shape[1], scores[0].shape[-1])
        require(
            same_dims(score.shape, shape),
            f"Scores {score} must be (N, M, classes), and BBoxes {box} (N, M, 4)",
        )
        require(
            dims_match(anchor.shape[0], box.shape[1]),
            f"Anchors {anchor} must be (M, 4) for BBoxes {box}, (N, M, 4)",
        )
    return Spec((-1, 6), boxes[0].dtype), offsets_spec(boxes[0].shape[0])


def _samples(r: Any) -> list[Sample]:
    def anchors(count: int) -> Numbers:
        low = r.integers(0, 20, (count, 2))
        return np.concatenate([low, low + r.integers(8, 30, (count, 2))], axis=1) * 1.0

    scores = [r.distinct((2, count, 2)) for count in (7, 3)]
    inputs = {
        "BBoxes": [r.uniform(-0.2, 0.2, (2, count, 4)) for count in (7, 3)],
        "Scores": scores,
        "Anchors": [anchors(7), anchors(3)],
        "ImInfo": np.array([[40, 36, 1.0], [48, 50, 1.25]]),
    }
    attrs = {
        "score_threshold": 0.3, "nms_top_k": 6, "nms_threshold": 0.3, "nms_eta": 1.0,
        "keep_top_k": 4,
    }  # fmt: skip
    no_boxes = {
        "BBoxes": [np.zeros((2, 0, 4))] * 2,
        "Scores": [np.zeros((2, 0, 2))] * 2,
        "Anchors": [np.zeros((0, 4))] * 2,
    }
    nothing = inputs | {"Scores": [-part for part in scores]}
    return [
        Sample(inputs, attrs),
        Sample(inputs, attrs | {"keep_top_k": 100, "nms_threshold": 0.7, "nms_eta": 0.8}),
        Sample(nothing, attrs),
        Sample(inputs, attrs | {"keep_top_k": 0}),
        Sample(inputs | no_boxes, attrs),
    ]


def _decoded(
    boxes: Numbers, scores: Numbers, anchors: Numbers, info: Numbers, chosen: Numbers
) -> Numbers:
    """Label, score and box of chosen scores, in the image before it was scaled."""
    number, kind = np.divmod(chosen, scores.shape[1])
    height, width, scale = info
    places = moved(np, anchors[number], boxes[number]) / scale
    places = clipped(places, np.floor(height / scale + 0.5), np.floor(width / scale + 0.5))
    return np.column_stack([kind + 1, scores.ravel()[chosen], places])


def _kept(found: Numbers, limit: int, threshold: float, eta: float) -> Numbers:
    """Rows that no better one of their label covers, the best of all labels first."""
    kept = []
    for label in np.unique(found[:, 0]):
        rows = np.flatnonzero(found[:, 0] == label)
        order = rows[np.argsort(-found[rows, 1], kind="stable")]
        kept.append(suppressed(found[:, 2:], order, threshold, eta, 1.0))
    chosen = found[np.concatenate(kept)] if kept else found
    ordered = chosen[np.argsort(-chosen[:, 1], kind="stable")]
    return ordered[:limit] if limit > -1 else ordered


@op(
    "retinanet_detection_output",
    inputs="BBoxes[] Scores[] Anchors[] ImInfo",
    outputs="Out Out@LOD",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def retinanet_detection_output(
    xp: Any,
    boxes: Sequence[Any],
    scores: Sequence[Any],
    anchors: Sequence[Any],
    info: Any,
    *,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float,
    nms_eta: float,
    keep_top_k: int,
) -> tuple[Any, Lod]:
    """Rows of label, score and box of every image, the best first; labels count from 1.

    The candidates of every level are its ``nms_top_k`` best scores above ``score_threshold`` (above
    0 for the last level), with anchors moved by ``BBoxes``, in the image before it was scaled. Of
    the candidates that no better one of their class covers, ``keep_top_k`` are kept. Source: Paddle
    op ``retinanet_detection_output``; Lin and others, 2017 (focal loss).
    """
    levels = [
        [to_host(part) for part in level] for level in zip(boxes, scores, anchors, strict=True)
    ]
    thresholds = [score_threshold] * (len(levels) - 1) + [0.0]
    images = []
    for image, about in enumerate(to_host(info)):
        found = []
        for (places, values, known), threshold in zip(levels, thresholds, strict=True):
            chosen = candidates(values[image].ravel(), threshold, nms_top_k)
            found.append(_decoded(places[image], values[image], known, about, chosen))
        images.append(_kept(np.concatenate(found), keep_top_k, nms_threshold, nms_eta))
    rows, lod = joined(xp, images)
    return rows.astype(boxes[0].dtype), lod
