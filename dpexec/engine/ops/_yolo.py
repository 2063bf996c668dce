"""Predictions at the cells of a grid: shared by ``yolo_box`` and ``yolov3_loss``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Spec, dims_match, require
from dpexec.engine.ops._shapes import require_float


def require_grid(x: Spec, anchors: int, class_num: int) -> None:
    """Check that an input is a grid with a box, a score and classes for each anchor."""
    require_float(x)
    channels = anchors * (5 + class_num)
    require(
        class_num > 0 and x.rank == 4 and dims_match(x.shape[1], channels),
        f"X {x} must be (N, {channels}, H, W): {anchors} anchors with 5 + {class_num} numbers",
    )


def require_anchors(anchors: Sequence[int]) -> None:
    """Check that anchors are pairs of width and height."""
    require(
        len(anchors) > 0 and len(anchors) % 2 == 0 and min(anchors) > 0,
        f"anchors must be positive widths and heights in turn, but are {list(anchors)}",
    )


def sigmoid(xp: Any, x: Any) -> Any:
    """``1 / (1 + exp(-x))``."""
    return 1 / (1 + xp.exp(-x))


def centers_and_sizes(
    xp: Any, grid: Any, anchors: Any, downsample_ratio: int, scale: float
) -> tuple[Any, Any]:
    """Predicted boxes relative to the image; like Paddle, it treats the image as square.

    Args:
        xp: ``numpy`` or ``cupy``.
        grid: ``(N, anchors, 5 + classes, H, W)``.
        anchors: widths and heights in pixels, ``(anchors, 2)``.
        downsample_ratio: pixels of the image per cell.
        scale: scale of the distance from the middle of a cell.

    Returns:
        Centres and sizes, ``(N, anchors, 2, H, W)`` each, across before down.
    """
    rows, columns = grid.shape[3:]
    ways = sigmoid(xp, grid[:, :, :2]) * scale - 0.5 * (scale - 1)
    cells = np.stack(np.meshgrid(np.arange(columns), np.arange(rows))).astype(grid.dtype)
    middles = (ways + xp.asarray(cells)) / rows
    shapes = np.asarray(anchors, grid.dtype).reshape(-1, 2, 1, 1) / (downsample_ratio * rows)
    return middles, xp.exp(grid[:, :, 2:4]) * xp.asarray(shapes.astype(grid.dtype))
