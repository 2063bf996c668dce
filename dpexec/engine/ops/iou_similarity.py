"""``iou_similarity``: intersection over union of boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._boxes import intersection_over_union, require_boxes
from dpexec.engine.ops._edges import smaller
from dpexec.engine.ops._shapes import require_same_dtype


def _infer(x: Spec, _: Spec | None, y: Spec) -> Spec:
    require_boxes(x, "X")
    require_boxes(y, "Y")
    require_same_dtype(x, y)
    return x.replace(shape=(x.shape[0], y.shape[0]))


def _boxes(r: Any, count: int) -> Any:
    low = r.uniform(0, 5, (count, 2))
    return np.concatenate([low, low + r.uniform(1, 5, (count, 2))], axis=1)


@op(
    "iou_similarity",
    inputs="X X@LOD? Y",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": _boxes(r, 3), "Y": _boxes(r, 5)}),
        Sample({"X": _boxes(r, 3), "X@LOD": Lod([[0, 1, 3]]), "Y": _boxes(r, 2)}),
        Sample({"X": _boxes(r, 2), "Y": _boxes(r, 2)}, {"box_normalized": False}),
        Sample(
            {"X": np.array([[0.0, 0, 2, 2]]), "Y": np.array([[1.0, 1, 3, 3], [5, 5, 6, 6]])},
            expected={"Out": np.array([[1 / 7, 0.0]])},
        ),
        smaller(
            Sample({"X": _boxes(r, 3), "Y": _boxes(r, 5)}),
            1e-6,
            "Out",
            "adds 1e-10 to areas; dpexec does not",
        ),
    ],
)
def iou_similarity(xp: Any, x: Any, _: Lod | None, y: Any, *, box_normalized: bool = True) -> Any:
    """Intersection over union of all pairs of boxes, ``(N, M)``.

    With ``box_normalized=False`` the last pixel belongs to a box. Source: Paddle op
    ``iou_similarity``.
    """
    return intersection_over_union(xp, x, y, 0.0 if box_normalized else 1.0)
