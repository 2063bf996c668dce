"""``matrix_nms``: decays the scores of boxes by their overlap with better boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._boxes import Numbers, to_host
from dpexec.engine.ops._nms import candidates, index_spec, infer_found, jaccard


def _infer(boxes: Spec, scores: Spec) -> tuple[Spec, Spec, Spec, Spec]:
    require(scores.rank == 3, f"Scores {scores} must be (N, classes, M)")
    found, lod = infer_found(boxes, scores, polygons=False)
    return found, lod, index_spec(found), lod


def _samples(r: Any) -> list[Sample]:
    low = r.uniform(0, 6, (2, 9, 2))
    boxes = np.concatenate([low, low + r.uniform(3, 6, (2, 9, 2))], axis=-1)
    inputs = {"BBoxes": boxes, "Scores": r.uniform(0, 1, (2, 3, 9))}
    attrs = {"score_threshold": 0.2, "nms_top_k": 7, "keep_top_k": 6, "post_threshold": 0.1}
    every = {"keep_top_k": -1, "nms_top_k": -1, "background_label": -1, "normalized": False}
    nothing = {"BBoxes": boxes[:, :0], "Scores": inputs["Scores"][:, :, :0]}
    low_first = inputs["Scores"] * np.array([0.1, 1.0])[:, None, None]
    return [
        Sample(inputs, attrs),
        Sample(inputs | {"Scores": inputs["Scores"] * 0.1}, attrs),
        Sample(inputs | {"Scores": low_first}, attrs),
        Sample(inputs, attrs | {"keep_top_k": 0}),
        Sample(nothing, attrs),
        Sample(inputs, attrs | {"use_gaussian": True, "gaussian_sigma": 1.5}),
        Sample(inputs, attrs | every),
    ]


def _decays(boxes: Numbers, extra: float, sigma: float | None) -> Numbers:
    """The factors of the boxes' scores, best first; linear if ``sigma`` is None, else Gaussian."""
    shared = np.tril(jaccard(boxes[:, None], boxes[None], extra), -1)
    worst = shared.max(axis=1)  # of each box that may suppress others: how far it is, itself
    with np.errstate(divide="ignore", invalid="ignore"):
        if sigma is None:
            decay = (1 - shared) / (1 - worst)
        else:
            decay = np.exp((worst**2 - shared**2) * sigma)
    decay[np.triu_indices(len(decay))] = 1
    found: Numbers = np.fmin(decay.min(axis=1, initial=1), 1)
    return found


@op(
    "matrix_nms",
    inputs="BBoxes Scores",
    outputs="Out Out@LOD Index Index@LOD",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def matrix_nms(
    xp: Any,
    boxes: Any,
    scores: Any,
    *,
    background_label: int = 0,
    score_threshold: float,
    post_threshold: float = 0.0,
    nms_top_k: int,
    keep_top_k: int,
    normalized: bool = True,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
) -> tuple[Any, Lod, Any, Lod]:
    """Rows of label, decayed score and box of every image, best first, and the boxes' numbers.

    The candidates of each class are its ``nms_top_k`` best boxes with scores above
    ``score_threshold``. The ``keep_top_k`` best candidates of all classes with decayed scores above
    ``post_threshold`` are kept.
    Source: Paddle op ``matrix_nms``; Wang and others, 2020 (SOLOv2).
    """
    extra, sigma = 0.0 if normalized else 1.0, gaussian_sigma if use_gaussian else None
    parts, indices = [], []
    for image, (places, classes) in enumerate(zip(to_host(boxes), to_host(scores), strict=True)):
        rows, numbers = [np.zeros((0, 6))], [np.zeros(0, np.int32)]
        for label, values in enumerate(classes):
            order = candidates(values, score_threshold, nms_top_k)
            if label == background_label or not len(order):
                continue
            shrunk = values[order] * _decays(places[order], extra, sigma)
            kept = shrunk > post_threshold
            labels = np.full(kept.sum(), float(label))
            rows.append(np.column_stack([labels, shrunk[kept], places[order[kept]]]))
            numbers.append(order[kept] + image * boxes.shape[1])
        found = np.concatenate(rows)
        order = np.argsort(-found[:, 1], kind="stable")
        order = order[:keep_top_k] if keep_top_k > -1 else order
        parts.append(found[order])
        indices.append(np.concatenate(numbers)[order, None])
    lod = Lod.of_lengths([[len(part) for part in parts]])
    made = np.concatenate(parts).astype(boxes.dtype), np.concatenate(indices).astype(np.int32)
    return xp.asarray(made[0]), lod, xp.asarray(made[1]), lod
