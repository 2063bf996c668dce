"""``norm``: vectors of length one."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._edges import SQUARES, spoiled
from dpexec.engine.ops._shapes import require_axis, require_float


def _infer(x: Spec, *, axis: int) -> tuple[Spec, Spec]:
    require_float(x)
    at = require_axis(axis, x)
    norms = x.replace(shape=(*x.shape[:at], 1, *x.shape[at + 1 :]), lod_level=0)
    return norms, x.replace(lod_level=0)


@op(
    "norm",
    inputs="X",
    outputs="Norm Out",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4, 2))}, {"axis": 1}),
        Sample({"X": r.normal((3, 4))}, {"axis": -1, "epsilon": 0.5}),
        Sample(
            {"X": np.array([[3.0, 4.0]])},
            {"axis": 1},
            expected={"Norm": np.array([[5.0]]), "Out": np.array([[0.6, 0.8]])},
        ),
        spoiled(Sample({"X": r.normal((3, 4, 2))}, {"axis": 1}), "X", 1e30, "X@GRAD", SQUARES),
    ],
    operand_ulps=2,
)
def norm(xp: Any, x: Any, *, axis: int, epsilon: float = 1e-10) -> tuple[Any, Any]:
    """``x / Norm`` with ``Norm = sqrt(sum(x**2) + epsilon)`` along ``axis``.

    Source: Paddle op ``norm``.
    """
    length = xp.sqrt((x * x).sum(axis=axis, keepdims=True) + epsilon)
    return length, x / length


@norm.grad("X", "Norm", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=2)
def norm_grad(xp: Any, x: Any, length: Any, d_out: Any, *, axis: int = -1) -> Any:
    """``(d_out - x * sum(x * d_out) / Norm**2) / Norm``."""
    share = (x * d_out).sum(axis=axis, keepdims=True) / (length * length)
    return (d_out - x * share) / length
