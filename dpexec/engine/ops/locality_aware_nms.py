"""``locality_aware_nms``: merges overlapping neighbours, then keeps the best boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import Numbers, to_host
from dpexec.engine.ops._nms import best, candidates, gathered, infer_found, shared_parts, suppressed
from dpexec.engine.ops.multiclass_nms import quadrangles


def _infer(boxes: Spec, scores: Spec) -> tuple[Spec, Spec]:
    require(
        scores.rank == 3 and dims_match(scores.shape[1], 1),
        f"Scores {scores} must be (N, 1, M): there is one class",
    )
    found, lod = infer_found(boxes, scores)
    return found.replace(lod_level=0), lod


def _samples(r: Any) -> list[Sample]:
    low = np.sort(r.uniform(0, 8, (2, 12, 2)), axis=1)
    boxes = np.concatenate([low, low + r.uniform(3, 6, (2, 12, 2))], axis=-1)
    inputs = {"BBoxes": boxes, "Scores": r.uniform(0, 1, (2, 1, 12))}
    attrs = {"score_threshold": 0.3, "nms_top_k": 7, "keep_top_k": 3, "nms_threshold": 0.5}
    every = {"keep_top_k": -1, "nms_top_k": -1, "normalized": False}
    return [
        Sample(inputs, attrs),
        Sample(inputs, attrs | every),
        Sample(inputs, attrs | {"background_label": -1}),
        Sample(inputs, attrs | {"nms_threshold": 0.8, "nms_eta": 0.7}),
        Sample(inputs | {"BBoxes": quadrangles(boxes)}, attrs | {"nms_threshold": 0.2}),
    ]


def _merged(
    boxes: Numbers, scores: Numbers, threshold: float, extra: float
) -> tuple[Numbers, Numbers]:
    """Boxes and scores after each run of overlapping neighbours is merged to one box.

    The merged box is the mean weighted by scores, its score their sum. It replaces the last box of
    its run; the others get no score.
    """
    boxes, scores = boxes.copy(), scores.copy()
    for last in range(1, len(boxes)):
        if shared_parts(boxes[last - 1 : last], boxes[last], extra) > threshold:
            both = scores[last - 1 : last + 1]
            boxes[last] = (boxes[last - 1 : last + 1] * both[:, None]).sum(axis=0) / both.sum()
            scores[last] = both.sum()
            scores[last - 1] = -np.inf
    return boxes, scores


@op(
    "locality_aware_nms",
    inputs="BBoxes Scores",
    outputs="Out Out@LOD",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def locality_aware_nms(
    xp: Any,
    boxes: Any,
    scores: Any,
    *,
    background_label: int = -1,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
    keep_top_k: int,
    normalized: bool = True,
) -> tuple[Any, Lod]:
    """Rows of label, score and box of every image; scores of merged boxes are added up.

    Boxes may be polygons, as for ``multiclass_nms``. If nothing is found, the result is a row with
    the single number -1. Source: Paddle op ``locality_aware_nms``; Zhou and others, 2017 (EAST).
    """
    extra, parts = 0.0 if normalized else 1.0, []
    for places, classes in zip(to_host(boxes), to_host(scores), strict=True):
        rows = [np.zeros((0, places.shape[1] + 2))]
        if background_label != 0:
            merged, sums = _merged(places, classes[0], nms_threshold, extra)
            order = candidates(sums, score_threshold, nms_top_k)
            kept = suppressed(merged, order, nms_threshold, nms_eta, extra)
            for label, chosen in best([(0, kept, sums[kept])], keep_top_k):
                labels = np.full(len(chosen), float(label))
                rows.append(np.column_stack([labels, sums[chosen], merged[chosen]]))
        parts.append(np.concatenate(rows))
    found, lod = gathered(parts, boxes.dtype)
    return xp.asarray(found), lod
