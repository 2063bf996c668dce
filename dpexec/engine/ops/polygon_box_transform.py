"""``polygon_box_transform``: offsets of corners turned into coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_float

PIXELS = 4
"""Pixels of the picture per position of the features."""


def _infer(x: Spec) -> Spec:
    require_float(x, "Input")
    require(
        x.rank == 4 and (x.shape[1] < 0 or x.shape[1] % 2 == 0),
        f"Input {x} must be (N, C, H, W) with an even number of channels",
    )
    return x.replace(lod_level=0)


@op(
    "polygon_box_transform",
    inputs="Input",
    outputs="Output",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"Input": r.normal((2, 8, 3, 4))}),
        Sample({"Input": r.normal((1, 2, 1, 5))}),
        Sample(
            {"Input": np.ones((1, 2, 2, 2))},
            expected={"Output": np.array([[[[-1.0, 3.0]] * 2, [[-1.0, -1.0], [3.0, 3.0]]]])},
        ),
    ],
)
def polygon_box_transform(xp: Any, x: Any) -> Any:
    """``4 * column - x`` in even channels, ``4 * row - x`` in odd ones.

    Source: Paddle op ``polygon_box_transform``; Zhou and others, 2017 (EAST).
    """
    columns = xp.arange(0, x.shape[3] * PIXELS, PIXELS, dtype=x.dtype)
    rows = xp.arange(0, x.shape[2] * PIXELS, PIXELS, dtype=x.dtype)[:, None]
    out = xp.empty_like(x)
    xp.subtract(columns, x[:, 0::2], out=out[:, 0::2])
    xp.subtract(rows, x[:, 1::2], out=out[:, 1::2])
    return out
