"""``anchor_generator``: the anchors of Faster R-CNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._priors import infer_boxes, require_maps, require_variances, with_variances

_ATTRS = {
    "anchor_sizes": [32.0, 64.0],
    "aspect_ratios": [0.5, 1.0, 2.0],
    "variances": [0.1, 0.1, 0.2, 0.2],
}


def _infer(
    features: Spec,
    *,
    anchor_sizes: Sequence[float],
    aspect_ratios: Sequence[float],
    variances: Sequence[float],
    stride: Sequence[float] = (16.0, 16.0),
) -> tuple[Spec, Spec]:
    require_maps(features)
    require_variances(variances)
    require(
        len(stride) == 2 and min(stride) > 0,
        f"stride must be two positive numbers, but is {list(stride)}",
    )
    require(
        anchor_sizes and min(anchor_sizes) > 0,
        f"anchor_sizes must be positive numbers, but are {list(anchor_sizes)}",
    )
    return infer_boxes(features, len(anchor_sizes) * len(aspect_ratios))


@op(
    "anchor_generator",
    inputs="Input",
    outputs="Anchors Variances",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"Input": r.normal((1, 2, 2, 3))}, _ATTRS),
        Sample({"Input": r.normal((2, 1, 3, 1))}, _ATTRS | {"stride": [7.0, 9.0], "offset": 0.0}),
        Sample({"Input": r.normal((2, 1, 1, 1))}, _ATTRS | {"aspect_ratios": [3.0]}),
    ],
)
def anchor_generator(
    xp: Any,
    features: Any,
    *,
    anchor_sizes: Sequence[float],
    aspect_ratios: Sequence[float],
    variances: Sequence[float],
    stride: Sequence[float] = (16.0, 16.0),
    offset: float = 0.5,
) -> Any:
    """Boxes of all ratios and sizes around every position of a map, in pixels.

    A ratio is height divided by width. Anchors and variances are ``(H, W, boxes, 4)``. Source:
    Paddle op ``anchor_generator``; Ren and others, 2015 (Faster R-CNN).
    """
    step = np.array(stride, float)
    widths = np.floor((step.prod() / np.array(aspect_ratios)) ** 0.5 + 0.5)
    heights = np.floor(widths * np.array(aspect_ratios) + 0.5)
    cells = np.stack([widths, heights], axis=-1)[:, None] / step  # of one stride, per ratio
    sizes = (cells * np.array(anchor_sizes)[:, None]).reshape(-1, 2)
    rows, columns = (np.arange(count) for count in features.shape[2:])
    middles = np.stack(np.meshgrid(columns, rows), axis=-1) * step + offset * (step - 1)
    halves = (sizes - 1) / 2
    anchors = [middles[:, :, None] - halves, middles[:, :, None] + halves]
    return with_variances(xp, np.concatenate(anchors, axis=-1), variances, features)
