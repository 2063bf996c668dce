"""``generate_proposal_labels``: training targets of proposed regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._boxes import require_boxes, to_host
from dpexec.engine.ops._proposals import (
    Boxes,
    Picker,
    deltas,
    joined,
    overlaps,
    require_image_info,
    same_sequences,
    sizes,
)
from dpexec.engine.ops._sequences import Ints, offsets_spec, on_host, sequence_count

_OUTPUTS = "Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights"


def _infer(
    rois: Spec,
    rois_lod: Spec | None,
    classes: Spec,
    classes_lod: Spec | None,
    crowd: Spec,
    crowd_lod: Spec | None,
    boxes: Spec,
    boxes_lod: Spec | None,
    info: Spec,
    *,
    class_nums: int,
    bbox_reg_weights: Sequence[float],
) -> tuple[Spec, ...]:
    require_boxes(rois, "RpnRois")
    require_boxes(boxes, "GtBoxes")
    require_image_info(info)
    require(classes.dtype == VarType.INT32, f"GtClasses {classes} must hold int32")
    require(
        len(bbox_reg_weights) == 4, f"bbox_reg_weights {list(bbox_reg_weights)} must be 4 numbers"
    )
    wide = Spec((-1, 4 * class_nums), rois.dtype)
    lod = offsets_spec(sequence_count(rois_lod))
    return (Spec((-1, 4), rois.dtype), Spec((-1, 1), VarType.INT32), wide, wide, wide, *[lod] * 5)


def _samples(r: Any) -> list[Sample]:
    corners = r.integers(0, 50, (24, 2))
    lod, rois = Lod([[0, 2, 4]]), np.hstack([corners, corners + r.integers(6, 40, (24, 2))]) * 1.0
    inputs = {
        "RpnRois": rois,
        "RpnRois@LOD": Lod([[0, 14, 24]]),
        "GtClasses": np.array([[3], [1], [2], [4]], np.int32),
        "GtClasses@LOD": lod,
        "IsCrowd": np.array([[0], [0], [1], [0]], np.int32),
        "IsCrowd@LOD": lod,
        "GtBoxes": np.array([[2, 3, 20, 22], [20, 21, 40, 45], [5, 30, 30, 50], [8, 9, 30, 31.0]]),
        "GtBoxes@LOD": lod,
        "ImInfo": np.array([[70, 80, 1.0], [64, 90, 1.25]]),
    }
    base = {
        "batch_size_per_im": 8,
        "fg_fraction": 0.25,
        "fg_thresh": 0.3,
        "bg_thresh_hi": 0.3,
        "bg_thresh_lo": 0.0,
        "bbox_reg_weights": [0.1, 0.1, 0.2, 0.2],
        "class_nums": 5,
        "use_random": False,
    }
    later = {
        "ImInfo": np.array([[70, 80, 1.0], [64, 90, 1.0]]),
        "IsCrowd": np.zeros((4, 1), np.int32),
        "RpnRois": rois - [0, 0, 0, 12],
    }
    return [
        Sample(inputs, base),
        Sample(inputs, base | {"is_cls_agnostic": True, "class_nums": 2, "bg_thresh_lo": 0.1}),
        Sample(inputs, base | {"fg_fraction": 0.5, "fg_thresh": 0.5, "batch_size_per_im": 30}),
        Sample(inputs | later, base | {"is_cascade_rcnn": True, "batch_size_per_im": 16}),
    ]


class _Sampled(NamedTuple):
    """Rows of boxes: true ones first, then proposed ones."""

    positives: Ints
    negatives: Ints
    nearest: Ints


@op(
    "generate_proposal_labels",
    inputs="RpnRois RpnRois@LOD GtClasses GtClasses@LOD IsCrowd IsCrowd@LOD GtBoxes GtBoxes@LOD "
    "ImInfo",
    outputs=f"{_OUTPUTS} {' '.join(f'{slot}@LOD' for slot in _OUTPUTS.split())}",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def generate_proposal_labels(
    xp: Any,
    rois: Any,
    rois_lod: Lod,
    classes: Any,
    classes_lod: Lod,
    crowd: Any,
    crowd_lod: Lod,
    boxes: Any,
    boxes_lod: Lod,
    info: Any,
    *,
    rng: RandomStream,
    batch_size_per_im: int,
    fg_fraction: float,
    fg_thresh: float,
    bg_thresh_hi: float,
    bg_thresh_lo: float,
    bbox_reg_weights: Sequence[float],
    class_nums: int,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
) -> tuple[Any, ...]:
    """Sample proposed and true boxes of every image, with their target classes and shifts.

    A box that overlaps a true box by ``fg_thresh`` gets its class, and the shift to it in the four
    columns of the class (of class 1 with ``is_cls_agnostic``). A box between the other thresholds
    becomes background, class 0. The weights are 1 in columns with shifts. With ``use_random``, the
    sample differs from that of the real Paddle.

    With ``is_cascade_rcnn`` the proposed boxes come from an earlier stage: all of them with an area
    are taken, and no true boxes. Paddle then mistakes the first proposed boxes for the true ones:
    it scales them twice, and leaves them out where the true ones are crowds.

    Source: Paddle op ``generate_proposal_labels``; Ren et al., 2015, Faster R-CNN; Cai,
    Vasconcelos, 2018, Cascade R-CNN.

    Raises:
        ValueError: GtBoxes, GtClasses and IsCrowd do not have the same sequences.
    """
    picker = Picker(rng, use_random)
    proposed, truth, infos, kinds = to_host(rois), to_host(boxes), to_host(info), on_host(classes)
    crowds, spans = on_host(crowd) != 0, rois_lod.spans()
    known = same_sequences(GtBoxes=boxes_lod, GtClasses=classes_lod, IsCrowd=crowd_lod)
    images = []
    for i, ((start, stop), (first, last)) in enumerate(zip(spans, known, strict=True)):
        there, scale = truth[first:last], infos[i, 2]
        every, crowded = proposed[start:stop] / scale, np.zeros(0, np.int64)
        if is_cascade_rcnn:
            every = every[(sizes(every) > 0).all(axis=1)]
        else:
            every = np.concatenate([there, every])
            crowded = np.flatnonzero(crowds[first:last])
        best = overlaps(every, there)
        usable = ~np.isin(np.arange(len(every)), crowded)
        found = _sample(best, usable, fg_thresh, bg_thresh_lo, bg_thresh_hi)
        if not is_cascade_rcnn:
            found = _pick(found, picker, batch_size_per_im, fg_fraction)
        if start == stop:  # as in the original, an image without proposals has no rows at all
            found = _Sampled(*[rows[:0] for rows in found])
        labels = np.zeros(len(found.positives) + len(found.negatives), np.int32)
        labels[: len(found.positives)] = kinds[first:last][found.nearest]
        shift = deltas(every[found.positives], there[found.nearest], bbox_reg_weights)
        columns = np.minimum(labels, 1) if is_cls_agnostic else labels
        rows = every[np.concatenate([found.positives, found.negatives])] * scale
        images.append((rows, labels[:, None], *_spread(shift, columns, class_nums)))
    made = [joined(xp, parts) for parts in zip(*images, strict=True)]
    return (*[value for value, _ in made], *[lod for _, lod in made])


def _sample(found: Boxes, usable: Ints, fg: float, low: float, high: float) -> _Sampled:
    """The boxes that may be sampled, by their overlaps with true ones."""
    best = np.where(usable, found.max(axis=1, initial=-1), -np.inf)
    positives = np.flatnonzero(best >= np.float32(fg))
    others = (best < np.float32(fg)) & (best >= np.float32(low)) & (best < np.float32(high))
    near = np.abs(found[positives] - best[positives, None]) < 1e-5
    nearest = near.argmax(axis=1) if len(positives) else positives
    return _Sampled(positives, np.flatnonzero(others), nearest)


def _pick(found: _Sampled, picker: Picker, count: int, fraction: float) -> _Sampled:
    """At most ``count`` boxes, at most a fraction of them positive."""
    taken = picker.pick(np.arange(len(found.positives)), int(np.float32(fraction) * count))
    negatives = picker.pick(found.negatives, count - len(taken))
    return _Sampled(found.positives[taken], negatives, found.nearest[taken])


def _spread(shift: Boxes, columns: Ints, classes: int) -> tuple[Boxes, Boxes, Boxes]:
    """Shifts in the columns of their classes, and the inside and outside weights of the loss."""
    out = np.zeros((len(columns), classes, 4), shift.dtype)
    weights = np.zeros_like(out)
    rows = np.flatnonzero(columns > 0)
    out[rows, columns[rows]] = shift[rows]
    weights[rows, columns[rows]] = 1
    flat = (len(columns), 4 * classes)
    return out.reshape(flat), weights.reshape(flat), weights.reshape(flat)
