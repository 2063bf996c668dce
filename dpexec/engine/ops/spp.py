"""``spp``: spatial pyramid pooling, from images of any size to rows of one length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._edges import EXTREMA, spoiled
from dpexec.engine.ops._pooling import Pooling
from dpexec.engine.ops._windows import Sizes


def _infer(x: Spec, *, pyramid_height: int, pooling_type: str) -> Spec:
    require(x.rank == 4, f"X {x} must be [batch, channels, height, width]")
    require(pyramid_height > 0, f"pyramid_height must be positive, but is {pyramid_height}")
    require(pooling_type in ("max", "avg"), f"pooling_type {pooling_type} is neither max nor avg")
    batch, channels, *_ = x.shape
    windows = (4**pyramid_height - 1) // 3
    return x.replace(shape=(batch, -1 if channels < 0 else channels * windows), lod_level=0)


def _levels(size: Sizes, height: int) -> Iterator[Pooling]:
    """The windows of each level: 1, then 2 by 2, then 4 by 4, ..., of equal size if possible.

    In a small image, some windows are beyond it: as in Paddle, their maximum is the lowest number,
    and their mean is NaN.
    """
    for level in range(height):
        count = 2**level
        kernel = [-(-n // count) for n in size]
        pads = [(k * count - n + 1) // 2 for n, k in zip(size, kernel, strict=True)]
        yield Pooling.of(size, ksize=kernel, strides=kernel, paddings=pads)


def _samples(r: SampleRng) -> list[Sample]:
    return [
        Sample({"X": r.distinct((2, 3, 4, 4))}, {"pyramid_height": 2, "pooling_type": "max"}),
        Sample({"X": r.normal((2, 3, 4, 8))}, {"pyramid_height": 3, "pooling_type": "avg"}),
        Sample({"X": r.distinct((1, 2, 7, 5))}, {"pyramid_height": 2, "pooling_type": "max"}),
        Sample({"X": r.normal((2, 1, 7, 6))}, {"pyramid_height": 2, "pooling_type": "avg"}),
        Sample(  # windows beyond the image
            {"X": r.distinct((2, 2, 5, 7))},
            {"pyramid_height": 3, "pooling_type": "max"},
            smooth=False,
        ),
        spoiled(
            Sample({"X": r.distinct((2, 3, 4, 4))}, {"pyramid_height": 2, "pooling_type": "max"}),
            "X",
            np.nan,
            "Out X@GRAD",
            EXTREMA,
        ),
    ]


@op("spp", inputs="X", infer=_infer, samples=_samples, operand_ulps=2)
def spp(xp: Any, x: Any, *, pyramid_height: int, pooling_type: str) -> Any:
    """Maxima or means of 1, 4, 16 ... windows of each image, ``(batch, channels * windows)``.

    Level ``p`` divides height and width into ``2**p`` windows; levels follow one another in a
    row. Source: Paddle op ``spp``.
    """
    pooled = (
        pooling.maximum(xp, x) if pooling_type == "max" else pooling.mean(xp, x)
        for pooling in _levels(x.shape[2:], pyramid_height)
    )
    return xp.concatenate([level.reshape(len(x), -1) for level in pooled], axis=1)


@spp.grad("X", "Out", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=2)
def spp_grad(
    xp: Any, x: Any, out: Any, d_out: Any, *, pyramid_height: int = 1, pooling_type: str = "max"
) -> Any:
    """The gradients of all levels, added up from the finest to the coarsest."""
    batch, channels, *size = x.shape
    total, end = None, out.shape[1]
    for pooling in reversed(list(_levels(tuple(size), pyramid_height))):
        start = end - channels * pooling.output[0] * pooling.output[1]
        shape = (batch, channels, *pooling.output)
        made, flow = out[:, start:end].reshape(shape), d_out[:, start:end].reshape(shape)
        found = (
            pooling.maximum_grad(xp, x, made, flow)
            if pooling_type == "max"
            else pooling.mean_grad(xp, flow)
        )
        total, end = found if total is None else total + found, start
    return total
