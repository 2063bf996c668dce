"""``add_position_encoding``: adds sines and cosines that encode positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_float


def _infer(x: Spec, lod: Spec | None, *, alpha: float = 1.0, beta: float = 1.0) -> Spec:
    require_float(x)
    require(
        x.rank in ((2, 3) if lod is None else (2,)) and (x.shape[-1] < 0 or x.shape[-1] % 2 == 0),
        f"X {x} must be [samples, positions, width], or [rows, width] with sequences, with an even "
        "width",
    )
    require(
        alpha >= 0 and beta >= 0, f"alpha and beta must not be negative, but are {alpha}, {beta}"
    )
    return x


@op(
    "add_position_encoding",
    inputs="X X@LOD?",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 6))}),
        Sample({"X": r.normal((2, 4, 2))}, {"alpha": 0.5, "beta": 2.0}),
        Sample({"X": r.normal((5, 4)), "X@LOD": Lod([[0, 2, 5]])}, {"beta": 0.5}),
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
    operand_ulps=2,
)
def add_position_encoding(
    xp: Any, x: Any, lod: Lod | None, *, alpha: float = 1.0, beta: float = 1.0
) -> Any:
    """``alpha * x + beta * encoding`` for ``x`` of ``(samples, positions, width)``.

    For sequences, ``(rows, width)``, each sequence begins at position 0.
    The first half of the width is ``sin(position / 10000**(i / (width / 2 - 1)))``, the second
    half the cosine of the same. Source: Paddle op ``add_position_encoding``; Vaswani et al. 2017.
    """
    half = x.shape[-1] // 2
    if x.ndim == 3:
        position = xp.arange(x.shape[1], dtype=np.float64)[:, None]
    elif lod is None:
        raise ValueError("X of (rows, width) must hold sequences, which positions are counted in")
    else:
        counted = [np.arange(stop - start, dtype=np.float64) for start, stop in lod.spans()]
        position = xp.asarray(np.concatenate(counted))[:, None]
    steps = 10000.0 ** (xp.arange(half) / (half - 1)) if half > 1 else xp.full(1, 10000.0)
    angles = position / steps
    encoding = xp.concatenate([xp.sin(angles), xp.cos(angles)], axis=1) * beta
    return x * x.dtype.type(alpha) + encoding.astype(x.dtype)


@add_position_encoding.grad("Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=1)
def add_position_encoding_grad(xp: Any, d_out: Any, *, alpha: float = 1.0) -> Any:
    """``alpha * d_out``."""
    return d_out * d_out.dtype.type(alpha)
