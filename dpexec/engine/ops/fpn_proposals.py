"""Proposals distributed to the levels of a feature pyramid, and collected from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import require_boxes, to_host
from dpexec.engine.ops._proposals import Boxes, same_sequences, sizes
from dpexec.engine.ops._sequences import Ints, offsets_spec, row_owners, sequence_count


def _infer_distribute(
    rois: Spec,
    lod: Spec | None,
    *,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
) -> tuple[list[Spec], Spec, list[Spec]]:
    require_boxes(rois, "FpnRois")
    require(
        0 <= min_level <= max_level,
        f"max_level {max_level} must not be below min_level {min_level}, nor that below 0",
    )
    count = max_level - min_level + 1
    part = rois.replace(shape=(-1, 4))
    restore = Spec((rois.shape[0], 1), VarType.INT32)
    return [part] * count, restore, [offsets_spec(sequence_count(lod))] * count


def _rois(r: Any, count: int, largest: float) -> Boxes:
    corners = r.uniform(0, 99, (count, 2))
    return np.hstack([corners, corners + r.uniform(4, largest, (count, 2))])


def _distribute_samples(r: Any) -> list[Sample]:
    levels = {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 224}
    few = {"min_level": 3, "max_level": 4, "refer_level": 3, "refer_scale": 20}
    some = {"FpnRois": _rois(r, 12, 500), "FpnRois@LOD": Lod([[0, 5, 12]])}
    empty = some | {"FpnRois@LOD": Lod([[0, 5, 5, 12]])}
    bad = {"FpnRois": np.array([[5, 5, 4, 9], [1, 1, 60, 60.0]]), "FpnRois@LOD": Lod([[0, 2]])}
    return [
        Sample(some, levels),
        Sample(some, few),
        Sample(bad, few),
        Sample(
            empty,
            few,
            deviates={"*": "refuses images without boxes; dpexec gives them empty sequences"},
        ),
    ]


@op(
    "distribute_fpn_proposals",
    inputs="FpnRois FpnRois@LOD",
    outputs="MultiFpnRois[] RestoreIndex MultiFpnRois@LOD[]",
    infer=_infer_distribute,
    no_grad=True,
    samples=_distribute_samples,
)
def distribute_fpn_proposals(
    xp: Any,
    rois: Any,
    lod: Lod,
    *,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
) -> tuple[list[Any], Any, list[Lod]]:
    """Distribute boxes to the levels of a pyramid by size.

    A box with the area of a square with side ``refer_scale`` goes to ``refer_level``, one twice as
    wide and high to the next level. ``RestoreIndex`` ``(rois, 1)`` has the row of each box in the
    concatenated levels. Source: Paddle op ``distribute_fpn_proposals``; Lin et al., 2017, Feature
    Pyramid Networks, equation 1.
    """
    boxes = to_host(rois)
    valid = (boxes[:, 2:] >= boxes[:, :2]).all(axis=1)
    scale = np.sqrt(np.where(valid, sizes(boxes).prod(axis=1), 0))
    wanted = np.floor(np.log2(scale / refer_scale + boxes.dtype.type(1e-6)) + refer_level)
    levels = np.clip(wanted, min_level, max_level).astype(np.int64)
    rows = [np.flatnonzero(levels == level) for level in range(min_level, max_level + 1)]
    owners, images = row_owners(lod), lod.sequences
    lods = [Lod.of_lengths([np.bincount(owners[part], minlength=images)]) for part in rows]
    restore = np.empty((len(boxes), 1), np.int32)
    restore[np.concatenate(rows), 0] = np.arange(len(boxes))
    return [xp.asarray(boxes[part]) for part in rows], xp.asarray(restore), lods


def _infer_collect(
    rois: list[Spec],
    rois_lods: list[Spec] | None,
    scores: list[Spec],
    scores_lods: list[Spec] | None,
    *,
    post_nms_topN: int,
) -> tuple[Spec, Spec]:
    require(
        len(rois) == len(scores) > 0,
        f"MultiLevelRois and MultiLevelScores must be as many, but are {len(rois)}, {len(scores)}",
    )
    require(post_nms_topN >= 0, f"post_nms_topN must not be negative, but is {post_nms_topN}")
    for boxes, marks in zip(rois, scores, strict=True):
        require_boxes(boxes, "MultiLevelRois")
        require(dims_match(boxes.shape[0], marks.size), f"{boxes} and {marks} must be as many")
    images = sequence_count(rois_lods[0]) if rois_lods else -1
    return rois[0].replace(shape=(-1, 4)), offsets_spec(images)


def _collect_samples(r: Any) -> list[Sample]:
    scores = r.distinct((15, 1))
    inputs = {
        "MultiLevelRois": [_rois(r, 6, 50), _rois(r, 9, 50)],
        "MultiLevelRois@LOD": [Lod([[0, 4, 6]]), Lod([[0, 3, 9]])],
        "MultiLevelScores": [scores[:6], scores[6:]],
        "MultiLevelScores@LOD": [Lod([[0, 4, 6]]), Lod([[0, 3, 9]])],
    }
    return [Sample(inputs, {"post_nms_topN": count}) for count in (7, 100, 11)]


@op(
    "collect_fpn_proposals",
    inputs="MultiLevelRois[] MultiLevelRois@LOD[] MultiLevelScores[] MultiLevelScores@LOD[]",
    outputs="FpnRois FpnRois@LOD",
    infer=_infer_collect,
    no_grad=True,
    checks_values=True,
    samples=_collect_samples,
)
def collect_fpn_proposals(
    xp: Any,
    rois: list[Any],
    rois_lods: list[Lod],
    scores: list[Any],
    scores_lods: list[Lod],
    *,
    post_nms_topN: int,
) -> tuple[Any, Lod]:
    """The best ``post_nms_topN`` boxes of all levels and images, image by image, best first.

    Every image has a sequence, even an image without boxes among the best ones, for which Paddle
    has none. Source: Paddle op ``collect_fpn_proposals``.

    Raises:
        ValueError: boxes and scores of a level do not have the same sequences.
    """
    for lod, other in zip(rois_lods, scores_lods, strict=True):
        same_sequences(MultiLevelRois=lod, MultiLevelScores=other)
    marks = np.concatenate([to_host(level).ravel() for level in scores])
    owners: Ints = np.concatenate([row_owners(lod) for lod in rois_lods])
    best = np.argsort(-marks, kind="stable")[:post_nms_topN]
    best = best[np.argsort(owners[best], kind="stable")]
    counts = np.bincount(owners[best], minlength=rois_lods[0].sequences)
    return xp.concatenate(rois)[xp.asarray(best)], Lod.of_lengths([counts])
