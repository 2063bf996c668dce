"""``multiclass_nms``: non-maximum suppression of the boxes of each class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, passes_on
from dpexec.engine.ops._boxes import Numbers, to_host
from dpexec.engine.ops._nms import best, candidates, gathered, index_spec, infer_found, suppressed

_INPUTS = "BBoxes BBoxes@LOD? Scores"


def _infer(boxes: Spec, _: Spec | None, scores: Spec) -> tuple[Spec, Spec]:
    return infer_found(boxes, scores)


def _infer_with_index(boxes: Spec, _: Spec | None, scores: Spec) -> tuple[Spec, Spec, Spec, Spec]:
    found, lod = infer_found(boxes, scores)
    return found, lod, index_spec(found), lod


def quadrangles(boxes: Numbers) -> Numbers:
    """Polygons in boxes ``(..., 4)``, with a corner at a third of each side."""
    left, top, right, bottom = np.moveaxis(boxes, -1, 0)
    across, down = left + (right - left) / 3, top + (bottom - top) / 3
    return np.stack([left, down, across, top, right, down, across, bottom], axis=-1)


def _samples(r: Any) -> list[Sample]:
    low = r.uniform(0, 6, (2, 9, 2))
    boxes = np.concatenate([low, low + r.uniform(3, 6, (2, 9, 2))], axis=-1)
    lod = Lod([[0, 4, 9]])
    attrs = {"score_threshold": 0.2, "nms_top_k": 7, "keep_top_k": 6, "nms_threshold": 0.4}
    images = {"BBoxes": boxes, "Scores": r.uniform(0, 1, (2, 3, 9))}
    rows = {"BBoxes": boxes.reshape(9, 2, 4), "BBoxes@LOD": lod, "Scores": r.uniform(0, 1, (9, 2))}
    every = {"keep_top_k": -1, "nms_top_k": -1, "background_label": -1}
    adaptive = {"nms_threshold": 0.8, "nms_eta": 0.7, "normalized": False}
    low_first = images["Scores"] * np.array([0.1, 1.0])[:, None, None]
    return [
        Sample(images, attrs),
        Sample(images | {"Scores": low_first}, attrs),
        Sample(images, attrs | every | adaptive),
        Sample(rows, attrs | {"background_label": -1}),
        Sample(images | {"BBoxes": quadrangles(boxes)}, attrs),
    ]


def _samples_with_none(r: Any) -> list[Sample]:
    """Samples, including calls that find nothing: an empty result has the declared shape."""
    found = _samples(r)
    inputs, attrs = dict(found[0].inputs), dict(found[0].attrs)
    no_boxes = {"BBoxes": inputs["BBoxes"][:, :0], "Scores": inputs["Scores"][:, :, :0]}
    return [
        *found,
        Sample(inputs, attrs | {"score_threshold": 1.0}),
        Sample(inputs, attrs | {"keep_top_k": 0}),
        Sample(inputs, attrs | {"nms_top_k": 0}),
        Sample(no_boxes, attrs),
    ]


def _images(
    boxes: Numbers, scores: Numbers, lod: Lod | None
) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
    """For every image, boxes and scores by class, ``(classes, M, ...)``, and the boxes' numbers."""
    if scores.ndim == 3:
        numbers = np.arange(boxes.shape[0] * boxes.shape[1]).reshape(boxes.shape[:2])
        for image, part in enumerate(scores):
            shape = (len(part), *boxes.shape[1:])
            yield (
                np.broadcast_to(boxes[image], shape),
                part,
                np.tile(numbers[image], (len(part), 1)),
            )
        return
    if lod is None:
        raise ValueError("BBoxes must be sequences, one per image, if Scores are (rows, classes)")
    numbers = np.arange(scores.size).reshape(scores.shape)
    for start, stop in lod.spans():
        rows = slice(start, stop)
        yield boxes[rows].swapaxes(0, 1), scores[rows].T, numbers[rows].T


def _of_image(
    boxes: Numbers,
    scores: Numbers,
    *,
    background_label: int,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float,
    nms_eta: float,
    keep_top_k: int,
    normalized: bool,
) -> list[tuple[int, Numbers]]:
    """Labels with the kept boxes of one image, best first."""
    found = []
    for label, (places, values) in enumerate(zip(boxes, scores, strict=True)):
        if label != background_label:
            order = candidates(values, score_threshold, nms_top_k)
            extra = 0.0 if normalized else 1.0
            kept = suppressed(places, order, nms_threshold, nms_eta, extra)
            found.append((label, kept, values[kept]))
    return best(found, keep_top_k)


def _found(
    boxes: Any, scores: Any, lod: Lod | None, **attrs: Any
) -> tuple[list[Numbers], list[Numbers]]:
    """For every image, rows of label, score and box, and the numbers of these boxes."""
    parts, indices = [], []
    for places, values, numbers in _images(to_host(boxes), to_host(scores), lod):
        rows, chosen = [np.zeros((0, boxes.shape[2] + 2))], [np.zeros(0, np.int32)]
        for label, kept in _of_image(places, values, **attrs):
            kept = np.sort(kept) if scores.ndim == 2 else kept
            labels = np.full(len(kept), float(label))
            rows.append(np.column_stack([labels, values[label, kept], places[label, kept]]))
            chosen.append(numbers[label, kept])
        parts.append(np.concatenate(rows))
        indices.append(np.concatenate(chosen)[:, None])
    return parts, indices


@op(
    "multiclass_nms",
    inputs=_INPUTS,
    outputs="Out Out@LOD",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def multiclass_nms(
    xp: Any,
    boxes: Any,
    lod: Lod | None,
    scores: Any,
    *,
    background_label: int = 0,
    score_threshold: float,
    nms_top_k: int,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
    keep_top_k: int,
    normalized: bool = True,
) -> tuple[Any, Lod]:
    """Rows of label, score and box: for every image, boxes that no better one of the class covers.

    Scores are ``(N, classes, M)`` for boxes ``(N, M, 4)``, or for polygons with 4, 8, 12 or 16
    corners, ``(N, M, 2 * corners)``; or ``(rows, classes)`` for boxes ``(rows, classes, 4)``, whose
    sequences are the images. The candidates of each class are its ``nms_top_k`` best boxes with
    scores above ``score_threshold``; an image keeps the ``keep_top_k`` best of all classes. If
    nothing is found, the result is a row with the single number -1. Source: Paddle op
    ``multiclass_nms``.
    """
    parts, _indices = _found(
        boxes, scores, lod, background_label=background_label, score_threshold=score_threshold,
        nms_top_k=nms_top_k, nms_threshold=nms_threshold, nms_eta=nms_eta, keep_top_k=keep_top_k,
        normalized=normalized,
    )  # fmt: skip
    rows, found = gathered(parts, boxes.dtype)
    return xp.asarray(rows), found


@passes_on(multiclass_nms.kernel)
def _with_index(
    xp: Any, boxes: Any, lod: Lod | None, scores: Any, **attrs: Any
) -> tuple[Any, Lod, Any, Lod]:
    """Like ``multiclass_nms``, with the number of each resulting box among all boxes.

    Boxes are numbered over all images; those of ``(rows, classes, 4)`` over rows and classes. If
    nothing is found, there are no rows. Source: Paddle op ``multiclass_nms2``.
    """
    parts, indices = _found(boxes, scores, lod, **attrs)
    found = Lod.of_lengths([[len(part) for part in parts]])
    rows, numbers = np.concatenate(parts), np.concatenate(indices)
    return xp.asarray(rows.astype(boxes.dtype)), found, xp.asarray(numbers.astype(np.int32)), found


multiclass_nms2 = op(
    "multiclass_nms2",
    inputs=_INPUTS,
    outputs="Out Out@LOD Index Index@LOD",
    infer=_infer_with_index,
    no_grad=True,
    samples=_samples_with_none,
)(_with_index)
