"""``add_position_encoding``: sines and cosines that tell positions apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.ir.opdef import Sample, Spec, op, require
from dpexec.ops._shapes import require_float


def _infer(x: Spec) -> Spec:
    require_float(x)
    require(
        x.rank == 3 and (x.shape[2] < 0 or x.shape[2] % 2 == 0),
        f"X {x} must be [samples, positions, width] with an even width",
    )
    return x


@op(
    "add_position_encoding",
    inputs="X",
    outputs="Out",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 6))}),
        Sample({"X": r.normal((2, 4, 2))}, {"alpha": 0.5, "beta": 2.0}),
        Sample(
            {"X": np.ones((1, 2, 4))},
            {"alpha": 0.0, "beta": 1.0},
            expected={
                "Out": np.array(
                    [[[0, 0, 1, 1], [np.sin(1), np.sin(1e-4), np.cos(1), np.cos(1e-4)]]]
                )
            },
        ),
    ],
)
def add_position_encoding(xp: Any, x: Any, *, alpha: float = 1.0, beta: float = 1.0) -> Any:
    """``alpha * x + beta * encoding`` for ``x`` of ``(samples, positions, width)``.

    The first half of the width is ``sin(position / 10000**(i / (width / 2 - 1)))``, the second
    half the cosine of the same. Source: Paddle op ``add_position_encoding``; Vaswani et al. 2017.
    """
    half = x.shape[2] // 2
    position = xp.arange(x.shape[1], dtype=np.float64)[:, None]
    steps = 10000.0 ** (xp.arange(half) / (half - 1)) if half > 1 else xp.full(1, 10000.0)
    angles = position / steps
    encoding = xp.concatenate([xp.sin(angles), xp.cos(angles)], axis=1) * beta
    return x * x.dtype.type(alpha) + encoding.astype(x.dtype)


@add_position_encoding.grad("Out@GRAD", outputs="X@GRAD", dense=True)
def add_position_encoding_grad(xp: Any, d_out: Any, *, alpha: float = 1.0) -> Any:
    """``alpha * d_out``."""
    return d_out * d_out.dtype.type(alpha)
