"""``prior_box``: the prior boxes of SSD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._priors import (
    centers,
    infer_boxes,
    require_maps,
    require_variances,
    steps,
    with_variances,
)

_VARIANCES = (0.1, 0.1, 0.2, 0.2)
_ALIKE = 1e-6
"""Ratios that differ by less count as equal."""


def _ratios(given: Sequence[float], flip: bool) -> list[float]:
    """Ratios of width to height, each once, 1 first; with ``flip`` their inverses, too."""
    found = [1.0]
    for ratio in given:
        if all(abs(ratio - other) >= _ALIKE for other in found):
            found += [ratio, 1 / ratio] if flip else [ratio]
    return found


def _infer(
    features: Spec,
    image: Spec,
    *,
    min_sizes: Sequence[float],
    max_sizes: Sequence[float] = (),
    aspect_ratios: Sequence[float],
    variances: Sequence[float],
    flip: bool = True,
) -> tuple[Spec, Spec]:
    require_maps(features, image)
    require_variances(variances)
    require(min_sizes and min(min_sizes) > 0, "min_sizes must be positive numbers")
    require(
        not max_sizes or len(max_sizes) == len(min_sizes),
        f"there are {len(max_sizes)} max_sizes for {len(min_sizes)} min_sizes",
    )
    require(
        all(high > low for low, high in zip(min_sizes, max_sizes, strict=False)),
        f"max_sizes {list(max_sizes)} must be above min_sizes {list(min_sizes)}",
    )
    count = len(_ratios(aspect_ratios, flip)) * len(min_sizes) + len(max_sizes)
    return infer_boxes(features, count)


def _sizes(
    low: float, high: float | None, ratios: Sequence[float], squares_first: bool
) -> list[tuple[float, float]]:
    """Widths and heights of the boxes of one minimal and maximal size."""
    shaped = [(low * ratio**0.5, low / ratio**0.5) for ratio in ratios]
    middle = [] if high is None else [((low * high) ** 0.5,) * 2]
    return shaped[:1] + middle + shaped[1:] if squares_first else shaped + middle


def _samples(r: Any) -> list[Sample]:
    inputs = {"Input": r.normal((1, 2, 2, 3)), "Image": r.normal((1, 3, 12, 24))}
    base = {"variances": list(_VARIANCES), "offset": 0.5}
    all_of_it = base | {"min_sizes": [4.0, 7.0], "max_sizes": [6.0, 9.0]}
    ratios = {"aspect_ratios": [1.0, 2.0, 3.0]}
    steps = {"step_w": 7.0, "step_h": 5.0, "clip": False, "flip": False}
    return [
        Sample(inputs, all_of_it | ratios),
        Sample(inputs, all_of_it | ratios | {"min_max_aspect_ratios_order": True, "clip": False}),
        Sample(inputs, base | {"min_sizes": [4.0], "aspect_ratios": [2.0]} | steps),
    ]


@op(
    "prior_box",
    inputs="Input Image",
    outputs="Boxes Variances",
    infer=_infer,
    no_grad=True,
    attrs={"use_mkldnn": False, "use_quantizer": False},
    samples=_samples,
)
def prior_box(
    xp: Any,
    features: Any,
    image: Any,
    *,
    min_sizes: Sequence[float],
    max_sizes: Sequence[float] = (),
    aspect_ratios: Sequence[float],
    variances: Sequence[float],
    flip: bool = True,
    clip: bool = True,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    min_max_aspect_ratios_order: bool = False,
) -> Any:
    """Boxes of given sizes and shapes around every position of a map, relative to the image.

    For every minimal size there is a box of each ratio, and a square with the geometric mean of
    minimal and maximal size. Boxes and variances are ``(H, W, boxes, 4)``. Source: Paddle op
    ``prior_box``; Liu and others, 2016 (SSD).
    """
    shape, pixels = features.shape, image.shape
    ratios = _ratios(aspect_ratios, flip)
    highs: Sequence[float | None] = max_sizes or [None] * len(min_sizes)
    sizes = np.array([
        size
        for low, high in zip(min_sizes, highs, strict=True)
        for size in _sizes(low, high, ratios, min_max_aspect_ratios_order)
    ])  # fmt: skip
    middles = centers(shape, steps(shape, pixels, step_w, step_h), offset)
    corners = np.concatenate([middles - sizes / 2, middles + sizes / 2], axis=-1)
    boxes = corners / np.array([pixels[3], pixels[2]] * 2)
    return with_variances(xp, np.clip(boxes, 0, 1) if clip else boxes, variances, features)
