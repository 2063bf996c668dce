"""``generate_proposals``: regions that may contain objects, from scores and deltas of anchors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import to_host
from dpexec.engine.ops._nms import suppressed
from dpexec.engine.ops._proposals import Boxes, clipped, joined, moved, require_image_info, sizes
from dpexec.engine.ops._sequences import Ints, offsets_spec
from dpexec.engine.ops._shapes import same_dims

_LIMIT = math.log(1000 / 16)
"""The logarithm of the largest factor by which a side of an anchor may grow."""


def _infer(
    scores: Spec, change: Spec, info: Spec, anchors: Spec, variances: Spec
) -> tuple[Spec, ...]:
    require(scores.rank == 4, f"Scores {scores} must be (images, anchors, height, width)")
    require(
        same_dims(change.shape[2:], scores.shape[2:])
        and (min(change.shape[1], scores.shape[1]) < 0 or change.shape[1] == 4 * scores.shape[1]),
        f"BboxDeltas {change} must have four channels for each of Scores {scores}",
    )
    require_image_info(info)
    for name, spec in (("Anchors", anchors), ("Variances", variances)):
        require(dims_match(spec.shape[-1], 4), f"{name} {spec} must end with 4 numbers")
    rois, probs = Spec((-1, 4), anchors.dtype), Spec((-1, 1), scores.dtype)
    lods = offsets_spec(scores.shape[0])
    return rois, probs, Spec((scores.shape[0],), VarType.INT64), lods, lods


def _samples(r: Any) -> list[Sample]:
    def inputs(images: int, anchors: int, height: int, width: int) -> dict[str, Any]:
        cells = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1) * 16.0
        half = np.array([[8.0 + 6 * a, 14.0 - 2 * a] for a in range(anchors)])
        low, high = cells[:, :, None] - half, cells[:, :, None] + half
        return {
            "Scores": r.distinct((images, anchors, height, width)),
            "BboxDeltas": r.normal((images, 4 * anchors, height, width)) * 0.7,
            "ImInfo": np.array([[64, 70, 1.0], [50, 60, 2.0]])[:images],
            "Anchors": np.concatenate([low, high], axis=-1),
            "Variances": r.uniform(0.5, 1.0, (height, width, anchors, 4)),
        }

    base = {"nms_thresh": 0.5, "min_size": 3.0, "eta": 1.0}
    return [
        Sample(inputs(2, 3, 4, 4), base | {"pre_nms_topN": 30, "post_nms_topN": 8}),
        Sample(inputs(2, 2, 3, 4), base | {"pre_nms_topN": 0, "post_nms_topN": -1}),
        Sample(
            inputs(1, 2, 3, 4),
            {"pre_nms_topN": 99, "post_nms_topN": 9, "nms_thresh": 0.9, "min_size": 1, "eta": 0.8},
        ),
        Sample(
            inputs(2, 1, 2, 2), base | {"pre_nms_topN": 9, "post_nms_topN": 9, "min_size": 500.0}
        ),
    ]


@op(
    "generate_proposals",
    inputs="Scores BboxDeltas ImInfo Anchors Variances",
    outputs="RpnRois RpnRoiProbs RpnRoisLod? RpnRois@LOD RpnRoiProbs@LOD",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def generate_proposals(
    xp: Any,
    scores: Any,
    change: Any,
    info: Any,
    anchors: Any,
    variances: Any,
    *,
    pre_nms_topN: int,
    post_nms_topN: int,
    nms_thresh: float,
    min_size: float,
    eta: float,
) -> tuple[Any, ...]:
    """The best shifted anchors of every image, without those that overlap better ones.

    ``RpnRois`` has the boxes, best first, ``RpnRoiProbs`` their scores, ``RpnRoisLod`` the number
    of boxes up to each image. Source: Paddle op ``generate_proposals``; Ren et al., 2015, Faster
    R-CNN.
    """
    images = len(scores)
    flat = to_host(scores).transpose(0, 2, 3, 1).reshape(images, -1)
    shifts = to_host(change).transpose(0, 2, 3, 1).reshape(images, -1, 4)
    shifts = shifts * to_host(variances).reshape(-1, 4)
    boxes, infos = moved(np, to_host(anchors).reshape(-1, 4), shifts, _LIMIT), to_host(info)
    rois: list[Boxes] = []
    probs: list[Boxes] = []
    for i in range(images):
        order = np.argsort(-flat[i], kind="stable")[: pre_nms_topN if pre_nms_topN > 0 else None]
        found = clipped(boxes[i, order], infos[i, 0], infos[i, 1])
        kept = _large(found, infos[i], min_size)
        if nms_thresh > 0:
            kept = suppressed(found, kept, nms_thresh, eta, 1.0, post_nms_topN or -1)
        rois.append(found[kept])
        probs.append(flat[i, order[kept], None])
    (out, lod), (out_probs, _) = joined(xp, rois), joined(xp, probs)
    return out, out_probs, xp.asarray(lod.offsets[1:]), lod, lod


def _large(boxes: Boxes, info: Boxes, least: float) -> Ints:
    """Numbers of boxes that are large enough in the original image, with their centre inside."""
    original = (boxes[:, 2:] - boxes[:, :2]) / info[2] + 1
    centers = boxes[:, :2] + sizes(boxes) / 2
    large = (original >= max(least, 1.0)).all(axis=1)
    return np.flatnonzero(large & (centers <= info[1::-1]).all(axis=1))
