"""``yolov3_loss``: the loss of the predictions at the cells of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import Numbers, intersection_over_union, to_host
from dpexec.engine.ops._shapes import same_dims
from dpexec.engine.ops._yolo import centers_and_sizes, require_anchors, require_grid, sigmoid

TINY = 1e-6
"""Smaller boxes are not objects, but pad the rows of a batch."""


def _infer(
    x: Spec,
    boxes: Spec,
    labels: Spec,
    scores: Spec | None,
    *,
    class_num: int,
    anchors: Sequence[int] = (),
    anchor_mask: Sequence[int] = (),
) -> tuple[Spec, Spec, Spec]:
    require_anchors(anchors)
    require(
        anchor_mask and min(anchor_mask) >= 0 and max(anchor_mask) < len(anchors) // 2,
        f"anchor_mask {list(anchor_mask)} must have numbers of the {len(anchors) // 2} anchors",
    )
    require_grid(x, len(anchor_mask), class_num)
    require(
        boxes.rank == 3 and dims_match(boxes.shape[2], 4),
        f"GTBox {boxes} must be (N, B, 4)",
    )
    require(labels.dtype == VarType.INT32, f"GTLabel {labels} must hold int32")
    for name, spec in (("GTLabel", labels), ("GTScore", scores)):
        require(
            spec is None or same_dims(spec.shape, boxes.shape[:2]),
            f"{name} {spec} must have one number for each box of GTBox {boxes}",
        )
    mask = x.replace(shape=(x.shape[0], len(anchor_mask), *x.shape[2:]), lod_level=0)
    return Spec(x.shape[:1], x.dtype), mask, Spec(boxes.shape[:2], VarType.INT32)


def _samples(r: Any) -> list[Sample]:
    boxes = np.array([
        [[0.3, 0.3, 0.4, 0.5], [0.8, 0.7, 0.2, 0.2], [0, 0, 0, 0]],
        [[0.2, 0.8, 0.3, 0.3], [0.9, 0.1, 0.9, 0.9], [0.5, 0.5, 0.1, 0.2]],
    ])  # fmt: skip
    inputs = {
        "X": r.normal((2, 16, 3, 3)),
        "GTBox": boxes,
        "GTLabel": np.array([[0, 2, 0], [1, 1, 2]], np.int32),
    }
    attrs = {
        "anchors": [4, 5, 8, 7, 20, 22],
        "anchor_mask": [0, 1],
        "class_num": 3,
        "ignore_thresh": 0.3,
        "downsample_ratio": 8,
    }
    scored = inputs | {"GTScore": r.uniform(0.2, 1, (2, 3))}
    return [
        Sample(inputs, attrs, grad=("X",)),
        Sample(scored, attrs | {"use_label_smooth": False, "scale_x_y": 1.2}, grad=("X",)),
        Sample(inputs, attrs | {"anchor_mask": [2, 1]}, grad=("X",)),
        Sample(
            inputs | {"GTBox": np.repeat(boxes[:, :1], 3, axis=1)},
            attrs,
            grad=("X",),
            deviates={
                "X@GRAD": (
                    "keeps the gradient of the last one of several objects in a cell; dpexec adds "
                    "them, as the loss does"
                )
            },
        ),
    ]


@dataclass(frozen=True)
class _Targets:
    """The targets of cells with an object; one entry for each object that has a cell.

    Attributes:
        places: numbers of image, anchor, row and column.
        boxes: position of the centre within its cell, logarithm of the size, ``(objects, 4)``.
        weights: weights of the boxes' losses.
        labels: ``(objects, classes)``.
        scores: scores of the objects.
        matches: for every object its anchor in ``anchor_mask``, -1 for none, ``(N, B)``.
    """

    places: tuple[Numbers, ...]
    boxes: Numbers
    weights: Numbers
    labels: Numbers
    scores: Numbers
    matches: Numbers


def smoothed(class_num: int, use_label_smooth: bool) -> float:
    """The probability that wrong classes should have; the right one should have the rest of 1."""
    return min(1 / class_num, 1 / 40) if use_label_smooth else 0.0


def _targets(
    boxes: Numbers, labels: Numbers, scores: Numbers | None, shape: Sequence[int],
    anchors: Sequence[int], anchor_mask: Sequence[int], class_num: int, downsample_ratio: int,
    use_label_smooth: bool,
) -> _Targets:  # fmt: skip
    shapes = np.array(anchors, boxes.dtype).reshape(-1, 2)
    pixels = downsample_ratio * shape[2]
    valid = (boxes[..., 2:] > TINY).all(axis=-1)
    centered = np.concatenate([-boxes[..., 2:], boxes[..., 2:]], axis=-1).reshape(-1, 4) / 2
    priors = np.concatenate([-shapes, shapes], axis=1) / (2 * pixels)
    with np.errstate(invalid="ignore"):
        nearest = intersection_over_union(np, centered, priors, 0.0).argmax(axis=1)
    masked = np.full(len(shapes), -1, np.int32)
    masked[list(anchor_mask)] = np.arange(len(anchor_mask))
    matches = np.where(valid, masked[nearest.reshape(valid.shape)], -1).astype(np.int32)
    image, number = np.nonzero(matches >= 0)
    chosen = boxes[image, number]
    cells = chosen[:, :2] * np.array([shape[3], shape[2]], boxes.dtype)
    column, row = cells.astype(np.int64).T
    within = chosen[:, :2] * np.array(shape[2], boxes.dtype) - np.stack([column, row], axis=1)
    anchor = nearest.reshape(valid.shape)[image, number]
    score = np.ones(len(chosen), boxes.dtype) if scores is None else scores[image, number]
    smooth = smoothed(class_num, use_label_smooth)
    wanted = np.full((len(chosen), class_num), smooth, boxes.dtype)
    wanted[np.arange(len(chosen)), labels[image, number]] = 1 - smooth
    return _Targets(
        places=(image, matches[image, number], row, column),
        boxes=np.concatenate([within, np.log(chosen[:, 2:] * pixels / shapes[anchor])], axis=1),
        weights=(2 - chosen[:, 2] * chosen[:, 3]) * score,
        labels=wanted,
        scores=score,
        matches=matches,
    )


def _objectness(
    grid: Numbers, boxes: Numbers, targets: _Targets, anchors: Numbers,
    downsample_ratio: int, scale: float, ignore_thresh: float,
) -> Numbers:  # fmt: skip
    """Scores of objects in their cells, -1 where another one is near enough, 0 elsewhere."""
    middles, shapes = centers_and_sizes(np, grid, anchors, downsample_ratio, scale)
    corners = np.moveaxis(np.concatenate([middles - shapes / 2, middles + shapes / 2], 2), 2, -1)
    found = np.zeros(corners.shape[:-1], grid.dtype)
    for image, objects in enumerate(boxes):
        real = objects[(objects[:, 2:] > TINY).all(axis=1)]
        halves = real[:, 2:] / 2
        ends = np.concatenate([real[:, :2] - halves, real[:, :2] + halves], axis=1)
        shared = intersection_over_union(np, corners[image].reshape(-1, 4), ends, 0.0)
        near = shared.max(axis=1, initial=0).reshape(found.shape[1:])
        found[image][near > ignore_thresh] = -1
    found[targets.places] = targets.scores
    return found


def _cross_entropy(x: Numbers, wanted: Numbers | float) -> Numbers:
    """The cross entropy of the sigmoid of ``x``."""
    found: Numbers = np.maximum(x, 0) - x * wanted + np.log1p(np.exp(-abs(x)))
    return found


def _at(grid: Numbers, targets: _Targets) -> Numbers:
    """The predictions in the cells of objects, ``(objects, 5 + classes)``."""
    image, anchor, row, column = targets.places
    return grid[image, anchor, :, row, column]


@op(
    "yolov3_loss",
    inputs="X GTBox GTLabel GTScore?",
    outputs="Loss ObjectnessMask GTMatchMask",
    infer=_infer,
    samples=_samples,
)
def yolov3_loss(
    xp: Any, x: Any, gt_box: Any, gt_label: Any, gt_score: Any, *, class_num: int,
    anchors: Sequence[int] = (), anchor_mask: Sequence[int] = (), downsample_ratio: int = 32,
    ignore_thresh: float = 0.7, use_label_smooth: bool = True, scale_x_y: float = 1.0,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The loss ``(N,)`` of boxes, classes, and whether there is an object.

    An object (centre and size relative to the image) belongs to the cell with its centre, at the
    anchor with the most similar size, if that is in ``anchor_mask``. ``ObjectnessMask`` has the
    objects' scores there, and -1 where a predicted box overlaps an object by more than
    ``ignore_thresh``; ``GTMatchMask`` has the anchor of every object, or -1. Source: Paddle op
    ``yolov3_loss``; Redmon and Farhadi, 2018 (YOLOv3).
    """
    shape = (x.shape[0], len(anchor_mask), 5 + class_num, *x.shape[2:])
    grid, boxes = to_host(x).reshape(shape), to_host(gt_box)
    targets = _targets(
        boxes, to_host(gt_label), None if gt_score is None else to_host(gt_score), x.shape,
        anchors, anchor_mask, class_num, downsample_ratio, use_label_smooth,
    )  # fmt: skip
    own = np.array(anchors).reshape(-1, 2)[list(anchor_mask)]
    mask = _objectness(grid, boxes, targets, own, downsample_ratio, scale_x_y, ignore_thresh)
    cells, weights = _at(grid, targets), targets.weights[:, None]
    losses = (_cross_entropy(cells[:, :2], targets.boxes[:, :2]) * weights).sum(axis=1)
    losses += (abs(cells[:, 2:4] - targets.boxes[:, 2:]) * weights).sum(axis=1)
    losses += _cross_entropy(cells[:, 5:], targets.labels).sum(axis=1) * targets.scores
    sure = _cross_entropy(grid[:, :, 4], mask > 0) * np.where(mask > 0, mask, mask == 0)
    total = sure.sum(axis=(1, 2, 3))
    np.add.at(total, targets.places[0], losses)
    made = (total.astype(x.dtype), mask.astype(x.dtype), targets.matches)
    return tuple(xp.asarray(array) for array in made)


@yolov3_loss.grad(
    "X", "GTBox", "GTLabel", "GTScore?", "Loss@GRAD", "ObjectnessMask", "GTMatchMask",
    outputs="X@GRAD", dense=True,
)  # fmt: skip
def yolov3_loss_grad(
    xp: Any, x: Any, gt_box: Any, gt_label: Any, gt_score: Any, d_loss: Any, mask: Any,
    _: Any, *, class_num: int, anchors: Sequence[int] = (), anchor_mask: Sequence[int] = (),
    downsample_ratio: int = 32, use_label_smooth: bool = True,
) -> Any:  # fmt: skip
    """The gradient of the predictions. Objects in one cell add up."""
    shape = (x.shape[0], len(anchor_mask), 5 + class_num, *x.shape[2:])
    grid, sure = to_host(x).reshape(shape), to_host(mask)
    targets = _targets(
        to_host(gt_box), to_host(gt_label), None if gt_score is None else to_host(gt_score),
        x.shape, anchors, anchor_mask, class_num, downsample_ratio, use_label_smooth,
    )  # fmt: skip
    d_grid = np.zeros_like(grid)
    weights = np.where(sure > 0, sure, sure == 0)
    d_grid[:, :, 4] = (sigmoid(np, grid[:, :, 4]) - (sure > 0)) * weights
    cells, d_cells = _at(grid, targets), np.zeros((len(targets.scores), 5 + class_num), x.dtype)
    d_cells[:, :2] = sigmoid(np, cells[:, :2]) - targets.boxes[:, :2]
    d_cells[:, 2:4] = np.where(cells[:, 2:4] > targets.boxes[:, 2:], 1, -1)
    d_cells[:, :4] *= targets.weights[:, None]
    d_cells[:, 5:] = (sigmoid(np, cells[:, 5:]) - targets.labels) * targets.scores[:, None]
    np.add.at(np.moveaxis(d_grid, 2, -1), targets.places, d_cells)
    d_grid *= to_host(d_loss).reshape(-1, 1, 1, 1, 1)
    return xp.asarray(d_grid.reshape(x.shape))
