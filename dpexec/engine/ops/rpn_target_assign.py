"""``rpn_target_assign``: training targets of a region proposal network's anchors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._anchor_targets import OUTPUTS, Targets, assign, infer, outputs, targets
from dpexec.engine.ops._boxes import to_host
from dpexec.engine.ops._proposals import Boxes, Picker, overlaps, same_sequences
from dpexec.engine.ops._sequences import Ints, on_host


def _infer(
    anchor: Spec, boxes: Spec, lod: Spec | None, crowd: Spec, crowd_lod: Spec | None, info: Spec
) -> tuple[Spec, ...]:
    return infer(anchor, boxes, lod, info)


def _samples(r: Any) -> list[Sample]:
    corners = r.integers(0, 60, (40, 2))
    inputs = {
        "Anchor": np.hstack([corners, corners + r.integers(8, 30, (40, 2))]) - 4.0,
        "GtBoxes": np.array([[2, 3, 20, 22], [30, 31, 50, 55], [5, 40, 30, 60], [8, 9, 30, 31.0]]),
        "GtBoxes@LOD": Lod([[0, 3, 4]]),
        "IsCrowd": np.array([[0], [0], [1], [0]], np.int32),
        "IsCrowd@LOD": Lod([[0, 3, 4]]),
        "ImInfo": np.array([[70, 80, 1.5], [64, 90, 1.0]]),
    }
    base = {"rpn_batch_size_per_im": 16, "rpn_straddle_thresh": 0.0, "use_random": False}
    few = {"rpn_batch_size_per_im": 8, "rpn_fg_fraction": 0.5, "rpn_straddle_thresh": -1.0}
    low = {"rpn_positive_overlap": 0.3, "rpn_negative_overlap": 0.25, "use_random": False}
    mixed = {"rpn_negative_overlap": 0.9, "rpn_positive_overlap": 0.4}
    return [Sample(inputs, base), Sample(inputs, few | low), Sample(inputs, base | mixed)]


@op(
    "rpn_target_assign",
    inputs="Anchor GtBoxes GtBoxes@LOD IsCrowd IsCrowd@LOD ImInfo",
    outputs=f"{OUTPUTS} {' '.join(f'{slot}@LOD' for slot in OUTPUTS.split())}",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def rpn_target_assign(
    xp: Any,
    anchor: Any,
    boxes: Any,
    lod: Lod,
    crowd: Any,
    crowd_lod: Lod,
    info: Any,
    *,
    rng: RandomStream,
    rpn_straddle_thresh: float,
    rpn_batch_size_per_im: int = 256,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    rpn_fg_fraction: float = 0.25,
    use_random: bool = True,
) -> tuple[Any, ...]:
    """Sample positive and negative anchors of every image, with their targets.

    ``LocationIndex`` are the positive anchors, ``TargetBBox`` their target shifts, ``ScoreIndex``
    all sampled anchors, ``TargetLabel`` 1 for positive ones and 0 for others. ``BBoxInsideWeight``
    is 0 in placeholder rows. Boxes of crowds do not count. Neither do anchors that leave the image
    by more than ``rpn_straddle_thresh``, unless it is negative. With ``use_random``, the sample
    differs from that of the real Paddle. Source: Paddle op ``rpn_target_assign``; Ren et al., 2015,
    Faster R-CNN.

    Raises:
        ValueError: GtBoxes and IsCrowd do not have the same sequences.
    """
    anchors, truth, infos, picker = (
        to_host(anchor),
        to_host(boxes),
        to_host(info),
        Picker(rng, use_random),
    )
    kept = on_host(crowd) == 0
    most = int(np.float32(rpn_fg_fraction) * rpn_batch_size_per_im)
    images: list[Targets] = []
    for i, (start, stop) in enumerate(same_sequences(GtBoxes=lod, IsCrowd=crowd_lod)):
        inside = _inside(anchors, infos[i], rpn_straddle_thresh)
        there = truth[start:stop][kept[start:stop]] * infos[i, 2]
        assigned = assign(
            overlaps(anchors[inside], there),
            rpn_positive_overlap,
            rpn_negative_overlap,
            lambda found, _: picker.pick(found, most),
            lambda found, taken: picker.pick(found, rpn_batch_size_per_im - taken),
        )
        images.append(targets(anchors, inside, there, assigned))
    return outputs(xp, images, len(anchors))


def _inside(anchors: Boxes, info: Boxes, straddle: float) -> Ints:
    """Numbers of the anchors that do not leave the image too far."""
    if straddle < 0:
        return np.arange(len(anchors))
    low = (anchors[:, :2] >= -straddle).all(axis=1)
    return np.flatnonzero(low & (anchors[:, 2:] < info[1::-1] + straddle).all(axis=1))
