"""``yolo_box``: boxes and scores from the predictions at the cells of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import product
from dpexec.engine.ops._yolo import centers_and_sizes, require_anchors, require_grid, sigmoid

_ATTRS = {"anchors": [10, 13, 16, 30], "class_num": 3, "conf_thresh": 0.4, "downsample_ratio": 8}
_SIZES = np.array([[30, 40], [20, 50]], np.int32)


def _infer(
    x: Spec, sizes: Spec, *, class_num: int, anchors: Sequence[int] = ()
) -> tuple[Spec, Spec]:
    require_anchors(anchors)
    count = len(anchors) // 2
    require_grid(x, count, class_num)
    require(
        sizes.dtype == VarType.INT32
        and sizes.rank == 2
        and dims_match(sizes.shape[0], x.shape[0])
        and dims_match(sizes.shape[1], 2),
        f"ImgSize {sizes} must be int32 (N, 2): height and width of every image",
    )
    boxes = product((count, *x.shape[2:]))
    made = x.replace(shape=(x.shape[0], boxes, 4), lod_level=0)
    return made, made.replace(shape=(x.shape[0], boxes, class_num))


@op(
    "yolo_box",
    inputs="X ImgSize",
    outputs="Boxes Scores",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((2, 16, 3, 3)), "ImgSize": _SIZES}, _ATTRS),
        Sample(
            {"X": r.normal((2, 16, 2, 2)), "ImgSize": _SIZES},
            _ATTRS | {"clip_bbox": False, "scale_x_y": 1.2},
        ),
        Sample({"X": r.normal((2, 16, 2, 3)), "ImgSize": _SIZES}, _ATTRS),
    ],
)
def yolo_box(
    xp: Any,
    x: Any,
    sizes: Any,
    *,
    class_num: int,
    anchors: Sequence[int] = (),
    downsample_ratio: int = 32,
    conf_thresh: float = 0.01,
    clip_bbox: bool = True,
    scale_x_y: float = 1.0,
) -> tuple[Any, Any]:
    """Boxes ``(N, anchors * H * W, 4)`` in pixels and their scores ``(N, ..., class_num)``.

    Both are 0 where the score of there being an object is below ``conf_thresh``. Source: Paddle
    op ``yolo_box``; Redmon and Farhadi, 2018 (YOLOv3).
    """
    batch, _, rows, columns = x.shape
    count = len(anchors) // 2
    grid = x.reshape(batch, count, 5 + class_num, rows, columns)
    middles, shapes = centers_and_sizes(xp, grid, anchors, downsample_ratio, scale_x_y)
    pixels = sizes[:, ::-1].astype(x.dtype)[:, None, :, None, None]
    middles, halves = middles * pixels, shapes * pixels / 2
    low, high = middles - halves, middles + halves
    if clip_bbox:
        low, high = xp.maximum(low, 0), xp.minimum(high, pixels - 1)
    sure = sigmoid(xp, grid[:, :, 4:5])
    sure = xp.where(sure < conf_thresh, 0, sure)
    boxes = xp.concatenate([low, high], axis=2) * (sure > 0)
    scores = sigmoid(xp, grid[:, :, 5:]) * sure
    return tuple(
        xp.ascontiguousarray(xp.moveaxis(part, 2, -1)).reshape(batch, -1, part.shape[2])
        for part in (boxes.astype(x.dtype, copy=False), scores.astype(x.dtype, copy=False))
    )
