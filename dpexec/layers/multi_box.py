"""Single-shot detection: predictions of boxes and classes at prior boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.variable import Variable
from dpexec.layers.images import conv2d
from dpexec.layers.joining import concat
from dpexec.layers.manipulation import flatten, reshape, transpose
from dpexec.layers.priors import prior_box as prior_boxes

__all__ = ["multi_box_head"]


def multi_box_head(
    inputs: Sequence[Variable],
    image: Variable,
    base_size: float,
    num_classes: int,
    aspect_ratios: Sequence[Any],
    min_ratio: int | None = None,
    max_ratio: int | None = None,
    min_sizes: Sequence[Any] | None = None,
    max_sizes: Sequence[Any] | None = None,
    steps: Sequence[float] | None = None,
    step_w: Sequence[float] | None = None,
    step_h: Sequence[float] | None = None,
    offset: float = 0.5,
    variance: Sequence[float] = [0.1, 0.1, 0.2, 0.2],
    flip: bool = True,
    clip: bool = False,
    kernel_size: int = 1,
    pad: int = 0,
    stride: int = 1,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable, Variable, Variable]:
    """Boxes and classes predicted by convolutions on several feature maps.

    Args:
        inputs: feature maps, ``(N, C, H, W)`` each.
        image: ``(N, C, H', W')``; only its size counts.
        base_size: size of the image; box sizes that are not given are derived from it and the
            ratios.
        num_classes: number of classes, with the background.
        aspect_ratios: one or several ratios for each map, width by height.
        min_ratio: size of boxes on the second map, in percent of ``base_size``.
        max_ratio: size of boxes on the last map, in percent of ``base_size``.
        min_sizes, max_sizes: one or several sizes for each map, in pixels.
        steps: pixels between positions, for each map.
        step_w: horizontal pixels between positions, for each map.
        step_h: vertical pixels between positions, for each map.
        offset: as for :func:`prior_box`.
        variance: variances of the four coordinates of a box.
        flip: whether to use the inverse of each ratio, too.
        clip: whether to clip boxes to the image.
        kernel_size, pad, stride: of the convolutions.
        name: ignored; accepted for compatibility.
        min_max_aspect_ratios_order: whether square boxes come first.

    Returns:
        Boxes ``(N, M, 4)``, classes ``(N, M, num_classes)``, prior boxes and their variances
        ``(M, 4)``. Source: Liu and others, 2016 (SSD).

    Raises:
        ValueError: an argument does not have one entry per map.

    See Also:
        :func:`ssd_loss`: the loss.
        :func:`detection_output`: the boxes in prediction.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     image = fluid.data("image", [None, 3, 64, 64])
        ...     cells = [fluid.data(f"cells{n}", [None, 8, n, n]) for n in (8, 4, 2)]
        ...     offsets, scores, boxes, variances = fluid.layers.multi_box_head(
        ...         cells, image, base_size=64, num_classes=21, aspect_ratios=[[2.0]] * 3,
        ...         min_ratio=20, max_ratio=90, offset=0.5, flip=True,
        ...     )
        ...     boxes.shape
        (336, 4)
    """
    if not isinstance(inputs, (list, tuple)):
        raise ValueError(f"inputs must be a list of variables, but are {inputs!r:.80}")
    if min_sizes is None and max_sizes is None and len(inputs) > 2:
        min_sizes, max_sizes = _sizes(len(inputs), base_size, min_ratio, max_ratio)
    across, down = (step_w, step_h) if steps is None else (steps, steps)
    per_map = {"min_sizes": min_sizes, "max_sizes": max_sizes, "aspect_ratios": aspect_ratios}
    for argument, values in {**per_map, "step_w": across, "step_h": down}.items():
        missing = values is None and argument in per_map
        counted = values is None or isinstance(values, (list, tuple))
        if missing or not counted or (values is not None and len(values) != len(inputs)):
            raise ValueError(f"{argument} must have an entry for each of {len(inputs)} inputs")
    assert min_sizes is not None and max_sizes is not None
    locations: list[Variable] = []
    classes: list[Variable] = []
    boxes, variances = [], []
    for number, features in enumerate(inputs):
        box, box_variance = prior_boxes(
            features, image, _listed(min_sizes[number]), _listed(max_sizes[number]),
            _listed(aspect_ratios[number]), variance, flip, clip,
            [across[number] if across else 0.0, down[number] if down else 0.0],
            offset, None, min_max_aspect_ratios_order,
        )  # fmt: skip
        for found, width in ((locations, 4), (classes, num_classes)):
            made = conv2d(features, box.shape[2] * width, kernel_size, stride, pad)
            found.append(flatten(transpose(made, [0, 2, 3, 1]), axis=1))
        boxes.append(box)
        variances.append(box_variance)
    if len(inputs) == 1:
        return locations[0], classes[0], boxes[0], variances[0]
    flat_boxes = [flatten(box, axis=3) for box in boxes]
    flat_variances = [flatten(one, axis=3) for one in variances]
    all_boxes, all_variances = concat(flat_boxes), concat(flat_variances)
    all_boxes.stop_gradient = all_variances.stop_gradient = True
    return (
        reshape(concat(locations, axis=1), [0, -1, 4]),
        reshape(concat(classes, axis=1), [0, -1, num_classes]),
        all_boxes,
        all_variances,
    )


def _sizes(
    maps: int, base_size: float, min_ratio: int | None, max_ratio: int | None
) -> tuple[list[float], list[float]]:
    """Minimum and maximum box sizes per map, growing from map to map."""
    if min_ratio is None or max_ratio is None:
        raise ValueError("multi_box_head needs min_sizes and max_sizes, or min_ratio and max_ratio")
    step = math.floor((max_ratio - min_ratio) / (maps - 2))
    ratios = range(min_ratio, max_ratio + 1, step)
    low = [base_size * 0.1, *(base_size * ratio / 100.0 for ratio in ratios)]
    high = [base_size * 0.2, *(base_size * (ratio + step) / 100.0 for ratio in ratios)]
    return low[:maps], high[:maps]


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]
