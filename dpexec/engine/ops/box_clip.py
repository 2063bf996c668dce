"""``box_clip``: boxes clipped to their image."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import require_boxes
from dpexec.engine.ops._sequences import per_row, sequence_count

_INFO = np.array([[20.0, 30.0, 1.0], [12.0, 16.0, 2.0]])


def _infer(boxes: Spec, lod: Spec | None, info: Spec) -> Spec:
    require_boxes(boxes, "Input", max(boxes.rank, 2))
    require(
        info.rank == 2 and dims_match(info.shape[1], 3),
        f"ImInfo {info} must hold height, width and scale of every image",
    )
    require(
        info.shape[0] < 0 or sequence_count(lod) <= info.shape[0],
        f"Input {boxes} has {sequence_count(lod)} sequences, but ImInfo {info} fewer images",
    )
    return boxes


@op(
    "box_clip",
    inputs="Input Input@LOD ImInfo",
    outputs="Output",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"Input": r.normal((5, 4)) * 20, "Input@LOD": Lod([[0, 2, 5]]), "ImInfo": _INFO}),
        Sample({"Input": r.normal((3, 2, 4)) * 20, "Input@LOD": Lod([[0, 1, 3]]), "ImInfo": _INFO}),
        Sample(
            {
                "Input": np.array([[-1.0, 3.0, 29.5, 8.0]]),
                "Input@LOD": Lod([[0, 1]]),
                "ImInfo": _INFO[:1],
            },
            expected={"Output": np.array([[0.0, 3.0, 29.0, 8.0]])},
        ),
        Sample({"Input": r.normal((2, 4)) * 20, "Input@LOD": Lod([[0, 2]]), "ImInfo": _INFO}),
    ],
)
def box_clip(xp: Any, boxes: Any, lod: Lod, info: Any) -> Any:
    """Boxes ``(..., 4)`` clipped to their images; each sequence has the boxes of an image.

    ``ImInfo`` has the height and width of the network's input, and its scale relative to the
    original image. Images after the last sequence have no boxes. Source: Paddle op ``box_clip``.
    """
    info = info[: len(lod.lengths)]
    sizes = xp.floor(info[:, 1::-1] / info[:, 2:] + 0.5) - 1
    limits = per_row(xp, xp.tile(sizes, (1, 2)), lod)
    limits = limits.reshape(-1, *[1] * (boxes.ndim - 2), 4).astype(boxes.dtype, copy=False)
    return xp.minimum(xp.maximum(boxes, 0), limits)
