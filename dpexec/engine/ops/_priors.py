"""Boxes at every position of a feature map: shared by ``prior_box`` and similar operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Spec, require
from dpexec.engine.ops._shapes import require_float

Numbers = np.ndarray[Any, Any]


def require_maps(*specs: Spec) -> None:
    """Check that inputs are feature maps or images."""
    for name, spec in zip(("Input", "Image"), specs, strict=False):
        require(spec.rank == 4, f"{name} {spec} must be (N, C, H, W)")
    require_float(specs[0], "Input")


def require_variances(variances: Sequence[float]) -> None:
    """Check that there are four positive numbers."""
    require(
        len(variances) == 4 and min(variances) > 0,
        f"variances must be four positive numbers, but are {list(variances)}",
    )


def infer_boxes(features: Spec, count: int) -> tuple[Spec, Spec]:
    """The specs of ``count`` boxes per position, and of their variances."""
    made = Spec((features.shape[2], features.shape[3], count, 4), features.dtype)
    return made, made


def steps(
    features: Sequence[int], image: Sequence[int], step_w: float, step_h: float
) -> tuple[float, float]:
    """Pixels between positions, across and down; a given 0 is derived from the sizes."""
    if step_w == 0 or step_h == 0:
        return image[3] / features[3], image[2] / features[2]
    return step_w, step_h


def centers(features: Sequence[int], step: tuple[float, float], offset: float) -> Numbers:
    """Image coordinates of the positions of a map, ``(H, W, 1, 2)``, across and down."""
    across = (np.arange(features[3]) + offset) * step[0]
    down = (np.arange(features[2]) + offset) * step[1]
    return np.stack(np.meshgrid(across, down), axis=-1)[:, :, None]


def with_variances(xp: Any, boxes: Numbers, variances: Sequence[float], like: Any) -> Any:
    """Boxes and a row of variances for each, on the device and in the type of ``like``."""
    rows = np.broadcast_to(np.array(variances), boxes.shape)
    return xp.asarray(boxes.astype(like.dtype)), xp.asarray(rows.astype(like.dtype))
