"""``detection_map``: mean average precision of detections, over batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._boxes import Numbers, to_host
from dpexec.engine.ops._nms import jaccard
from dpexec.engine.ops._sequences import offsets_spec
from dpexec.engine.ops._shapes import require_float

_KINDS = ("integral", "11point")
_STEP = 1e-6
"""Recalls that differ by less count as equal."""


def _infer(
    found: Spec, _: Spec | None, label: Spec, *states: Spec | None,
    class_num: int, ap_type: str = "integral",
) -> tuple[Spec, ...]:  # fmt: skip
    require_float(found, "DetectRes")
    require(
        found.rank == 2 and found.shape[1] in (6, -1),
        f"DetectRes {found} must be rows of label, score and box",
    )
    require(
        label.rank == 2 and label.shape[1] in (5, 6, -1),
        f"Label {label} must be rows of label, whether it is difficult (or not at all), and box",
    )
    require(ap_type in _KINDS, f"ap_type must be {' or '.join(_KINDS)}, but is {ap_type!r}")
    counts, pairs = Spec((class_num, 1), VarType.INT32), Spec((-1, 2), found.dtype)
    lod = offsets_spec(class_num)
    return counts, pairs, lod, pairs, lod, Spec((1,), found.dtype)


def _samples(r: Any) -> list[Sample]:
    low = r.uniform(0, 0.4, (5, 2))
    boxes = np.concatenate([low, low + r.uniform(0.3, 0.6, (5, 2))], axis=1)
    label = np.column_stack([[1.0, 2, 1, 1, 2], [0, 0, 1, 0, 0], boxes])
    guess = boxes[[0, 1, 0, 3, 4, 2, 1]] + r.uniform(-0.05, 0.05, (7, 4))
    scores = r.distinct((7,)) + 0.1
    found = np.column_stack([[1.0, 2, 1, 1, 1, 1, 2], scores, guess])
    inputs = {"DetectRes": found, "DetectRes@LOD": Lod([[0, 3, 7]])}
    inputs |= {"Label": label, "Label@LOD": Lod([[0, 2, 5]])}
    lod = Lod([[0, 0, 2, 3]])
    states = {
        "HasState": np.array([1], np.int32),
        "PosCount": np.array([[0], [3], [1]], np.int32),
        "TruePos": np.array([[0.9, 1.0], [0.35, 0.0], [0.8, 1.0]]),
        "TruePos@LOD": lod,
        "FalsePos": np.array([[0.9, 0.0], [0.35, 1.0], [0.8, 0.0]]),
        "FalsePos@LOD": lod,
    }
    attrs = {"class_num": 3, "overlap_threshold": 0.4}
    return [
        Sample(inputs, attrs),
        Sample(inputs | states, attrs | {"evaluate_difficult": False}),
        Sample(inputs, attrs | {"ap_type": "11point"}),
        Sample(inputs, attrs | {"background_label": 2}),
        Sample(inputs, attrs | {"background_label": 3}),
        Sample(inputs | {"Label": np.delete(label, 1, axis=1)}, attrs),
    ]


def _hits(found: Numbers, objects: Numbers, threshold: float, difficult: bool) -> Numbers:
    """The detections of one class in an image, best first: score, and whether each is right.

    Args:
        found: score and box of each detection.
        objects: whether an object is difficult, and its box.
        threshold: a box is right if its intersection over union with an object is larger.
        difficult: whether difficult objects count; if not, their detections do not count, either.
    """
    order = np.argsort(-found[:, 0], kind="stable")
    seen, made = np.zeros(len(objects), bool), []
    for score, *box in found[order].tolist():
        shared = jaccard(np.clip(np.array(box), 0, 1), objects[:, 1:], 0.0)
        nearest = int(shared.argmax()) if len(shared) else -1
        right = nearest >= 0 and shared[nearest] > threshold
        if right and not difficult and objects[nearest, 0]:
            continue
        made.append((score, float(right and not seen[nearest])))
        if right:
            seen[nearest] = True
    return np.array(made).reshape(-1, 2)


def _average_precision(hits: Numbers, objects: int, ap_type: str) -> float:
    """The area under precision by recall."""
    ordered = hits[np.argsort(-hits[:, 0], kind="stable"), 1]
    right = np.cumsum(ordered)
    precision, recall = right / np.arange(1, len(right) + 1), right / objects
    if ap_type == "11point":
        levels = np.arange(11) / 10
        return float(np.mean([precision[recall >= level].max(initial=0) for level in levels]))
    steps = np.diff(recall, prepend=0)
    return float((precision * np.where(steps > _STEP, steps, 0)).sum())


def _by_class(
    found: Numbers, lod: Lod, label: Numbers, label_lod: Lod, class_num: int,
    threshold: float, difficult: bool,
) -> tuple[Numbers, list[list[Numbers]]]:  # fmt: skip
    """Objects per class, and the hits of each class."""
    counts = np.zeros(class_num, np.int32)
    hits: list[list[Numbers]] = [[] for _ in range(class_num)]
    if label.shape[1] == 5:
        label = np.insert(label, 1, 0, axis=1)
    for (start, stop), (first, last) in zip(lod.spans(), label_lod.spans(), strict=True):
        image, objects = found[start:stop], label[first:last]
        for kind in range(class_num):
            own = objects[objects[:, 0] == kind, 1:]
            counts[kind] += len(own) if difficult else (own[:, 0] == 0).sum()
            hits[kind].append(_hits(image[image[:, 0] == kind, 1:], own, threshold, difficult))
    return counts, hits


@op(
    "detection_map",
    inputs="DetectRes DetectRes@LOD Label Label@LOD HasState? PosCount? "
    "TruePos? TruePos@LOD? FalsePos? FalsePos@LOD?",
    outputs="AccumPosCount AccumTruePos AccumTruePos@LOD AccumFalsePos AccumFalsePos@LOD MAP",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def detection_map(
    xp: Any, found: Any, lod: Lod, label: Any, label_lod: Lod, has_state: Any, pos_count: Any,
    true_pos: Any, true_lod: Lod | None, false_pos: Any, _: Lod | None, *, class_num: int,
    overlap_threshold: float = 0.5, evaluate_difficult: bool = True, ap_type: str = "integral",
    background_label: int = 0,
) -> tuple[Any, ...]:  # fmt: skip
    """The mean average precision ``(1,)``, and the state that accumulates over batches.

    A detection (label, score, box) is right if it overlaps an object of its image and class by more
    than ``overlap_threshold``; each object counts once. The state is the number of objects per
    class, and the score and 1 or 0 of all detections, with a sequence per class; it is used if
    ``HasState`` is not 0. Classes without objects do not count. Neither do classes with
    ``background_label`` objects, because Paddle compares it with their number, not with the label.
    Source: Paddle op ``detection_map``.
    """
    counts, hits = _by_class(
        to_host(found), lod, to_host(label), label_lod, class_num, overlap_threshold,
        evaluate_difficult,
    )  # fmt: skip
    if has_state is not None and true_lod and to_host(has_state).ravel()[0]:
        counts = counts + to_host(pos_count).ravel()
        before = to_host(true_pos)
        for kind, (start, stop) in enumerate(true_lod.spans()):
            hits[kind].insert(0, before[start:stop])
    rows = [np.concatenate(parts) for parts in hits]
    average = [
        _average_precision(own, count, ap_type) if len(own) else 0.0
        for own, count in zip(rows, counts.tolist(), strict=True)
        if count not in (0, background_label)
    ]
    right = np.concatenate(rows).astype(found.dtype)
    wrong = np.column_stack([right[:, 0], 1 - right[:, 1]])
    made = Lod.of_lengths([[len(own) for own in rows]])
    mean = np.array([np.mean(average) if average else 0.0], found.dtype)
    pairs = xp.asarray(right), made, xp.asarray(wrong), made
    return (xp.asarray(counts.astype(np.int32)[:, None]), *pairs, xp.asarray(mean))
