"""``retinanet_target_assign``: training targets of a RetinaNet's anchors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._anchor_targets import OUTPUTS, Targets, assign, infer, outputs, targets
from dpexec.engine.ops._boxes import to_host
from dpexec.engine.ops._proposals import overlaps, same_sequences
from dpexec.engine.ops._sequences import Ints, offsets_spec, on_host, sequence_count


def _infer(
    anchor: Spec,
    boxes: Spec,
    lod: Spec | None,
    labels: Spec,
    labels_lod: Spec | None,
    crowd: Spec,
    crowd_lod: Spec | None,
    info: Spec,
) -> tuple[Spec, ...]:
    require(labels.dtype == VarType.INT32, f"GtLabels {labels} must hold int32")
    found, images = infer(anchor, boxes, lod, info), sequence_count(lod)
    count = Spec((images, 1), VarType.INT32)
    return (*found[:5], count, *found[5:], offsets_spec(images))


def _samples(r: Any) -> list[Sample]:
    corners = r.integers(0, 60, (30, 2))
    lod = Lod([[0, 3, 4]])
    inputs = {
        "Anchor": np.hstack([corners, corners + r.integers(8, 30, (30, 2))]) * 1.0,
        "GtBoxes": np.array([[2, 3, 20, 22], [30, 31, 50, 55], [5, 40, 30, 60], [8, 9, 30, 31.0]]),
        "GtBoxes@LOD": lod,
        "GtLabels": np.array([[3], [1], [2], [4]], np.int32),
        "GtLabels@LOD": lod,
        "IsCrowd": np.array([[0], [0], [1], [0]], np.int32),
        "IsCrowd@LOD": lod,
        "ImInfo": np.array([[70, 80, 1.5], [64, 90, 1.0]]),
    }
    return [
        Sample(inputs),
        Sample(inputs, {"positive_overlap": 0.3, "negative_overlap": 0.25}),
        Sample(inputs, {"positive_overlap": 0.4, "negative_overlap": 0.8}),
    ]


@op(
    "retinanet_target_assign",
    inputs="Anchor GtBoxes GtBoxes@LOD GtLabels GtLabels@LOD IsCrowd IsCrowd@LOD ImInfo",
    outputs=f"{OUTPUTS} ForegroundNumber {' '.join(f'{slot}@LOD' for slot in OUTPUTS.split())} "
    "ForegroundNumber@LOD",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def retinanet_target_assign(
    xp: Any,
    anchor: Any,
    boxes: Any,
    lod: Lod,
    labels: Any,
    labels_lod: Lod,
    crowd: Any,
    crowd_lod: Lod,
    info: Any,
    *,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Any, ...]:
    """Like ``rpn_target_assign``, for all anchors, with classes as labels.

    ``ForegroundNumber`` is the number of positive anchors of every image plus one, by which
    ``sigmoid_focal_loss`` divides. Source: Paddle op ``retinanet_target_assign``; Lin et al.,
    2017, Focal Loss for Dense Object Detection.

    Raises:
        ValueError: GtBoxes, GtLabels and IsCrowd do not have the same sequences.
    """
    anchors, truth, infos = to_host(anchor), to_host(boxes), to_host(info)
    classes, kept, everyone = on_host(labels), on_host(crowd) == 0, np.arange(len(anchors))
    images: list[Targets] = []
    spans = same_sequences(GtBoxes=lod, GtLabels=labels_lod, IsCrowd=crowd_lod)
    for i, (start, stop) in enumerate(spans):
        rows = np.flatnonzero(kept[start:stop]) + start
        there = truth[rows] * infos[i, 2]
        found = overlaps(anchors, there)
        assigned = assign(found, positive_overlap, negative_overlap, _all, _all)
        images.append(targets(anchors, everyone, there, assigned, classes[rows]))
    counts = np.array([[len(image.locations) + 1] for image in images], np.int32)
    values = outputs(xp, images, len(anchors))
    return (*values[:5], xp.asarray(counts), *values[5:], Lod([np.arange(len(images) + 1)]))


def _all(candidates: Ints, _: int) -> Ints:
    return candidates
