"""``density_prior_box``: several prior boxes between neighbouring positions of a map."""

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
from dpexec.engine.ops._shapes import product


def _infer(
    features: Spec,
    image: Spec,
    *,
    variances: Sequence[float],
    flatten_to_2d: bool = False,
    fixed_sizes: Sequence[float] = (),
    fixed_ratios: Sequence[float] = (),
    densities: Sequence[int] = (),
) -> tuple[Spec, Spec]:
    require_maps(features, image)
    require_variances(variances)
    require(
        len(fixed_sizes) == len(densities),
        f"there are {len(fixed_sizes)} fixed_sizes for {len(densities)} densities",
    )
    count = len(fixed_ratios) * sum(density**2 for density in densities)
    made, _ = infer_boxes(features, count)
    if flatten_to_2d:
        made = made.replace(shape=(product(made.shape[:3]), 4))
    return made, made


def _samples(r: Any) -> list[Sample]:
    inputs = {"Input": r.normal((1, 2, 2, 3)), "Image": r.normal((1, 3, 12, 27))}
    attrs = {
        "variances": [0.1, 0.1, 0.2, 0.2],
        "fixed_sizes": [4.0, 9.0],
        "fixed_ratios": [1.0, 2.0],
        "densities": [3, 1],
    }
    return [
        Sample(inputs, attrs),
        Sample(inputs, attrs | {"clip": False, "flatten_to_2d": True}),
        Sample(inputs, attrs | {"step_w": 7.0, "step_h": 4.0, "offset": 0.0}),
    ]


@op(
    "density_prior_box",
    inputs="Input Image",
    outputs="Boxes Variances",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def density_prior_box(
    xp: Any,
    features: Any,
    image: Any,
    *,
    variances: Sequence[float],
    clip: bool = True,
    flatten_to_2d: bool = False,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    fixed_sizes: Sequence[float] = (),
    fixed_ratios: Sequence[float] = (),
    densities: Sequence[int] = (),
) -> Any:
    """Grids of ``density x density`` boxes around every position of a map, relative to the image.

    Boxes are always clipped to the image, as in Paddle, even without ``clip``. Boxes and variances
    are ``(H, W, boxes, 4)``, or ``(H * W * boxes, 4)``. Source: Paddle op ``density_prior_box``;
    Zhang and others, 2017 (FaceBoxes).
    """
    shape, pixels = features.shape, image.shape
    step = steps(shape, pixels, step_w, step_h)
    width = int((step[0] + step[1]) / 2)
    moves, sizes = [], []
    for size, density in zip(fixed_sizes, densities, strict=True):
        shift = width // density
        grid = np.arange(density) * shift + shift / 2 - width / 2
        moves += [(across, down) for down in grid for across in grid] * len(fixed_ratios)
        for ratio in fixed_ratios:
            sizes += [(size * ratio**0.5, size / ratio**0.5)] * density**2
    middles = centers(shape, step, offset) + np.array(moves)
    halves = np.array(sizes) / 2
    corners = np.concatenate([middles - halves, middles + halves], axis=-1)
    boxes = corners / np.array([pixels[3], pixels[2]] * 2)
    limits = (0, 1) if clip else ([0, 0, -np.inf, -np.inf], [np.inf, np.inf, 1, 1])
    boxes = np.clip(boxes, *limits)
    return with_variances(xp, boxes.reshape(-1, 4) if flatten_to_2d else boxes, variances, features)
