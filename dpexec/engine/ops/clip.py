"""``clip``, ``clip_by_norm`` and ``squared_l2_norm``: bounds for values and for their norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._edges import edge
from dpexec.engine.ops._optimizers import scalar
from dpexec.engine.ops._shapes import require_float
from dpexec.engine.ops._unary import bends_nowhere


def _infer(x: Spec, low: Spec | None, high: Spec | None, *, min: float, max: float) -> Spec:
    require_float(x)
    require(
        low is not None or high is not None or min < max,
        f"min must be less than max, but they are {min} and {max}",
    )
    return x


@op(
    "clip",
    inputs="X Min? Max?",
    infer=_infer,
    sparse=("X",),
    samples=lambda r: [
        Sample({"X": r.away_from(0.5, (3, 4)) - 1.0}, {"min": -0.5, "max": 10.0}),
        Sample(
            {"X": np.array([-2.0, 0.25, 2.0])},
            {"min": -1.0, "max": 0.5},
            expected={"Out": np.array([-1.0, 0.25, 0.5])},
        ),
        Sample({"X": r.distinct((2, 3, 2)) - 0.55}, {"min": -0.3, "max": 0.3}),
    ],
    capturable=True,
    fuses=True,
    flops=per_element("Out", 1),
)
def clip(xp: Any, x: Any, low: Any = None, high: Any = None, *, min: float, max: float) -> Any:
    """``x`` limited to ``min`` and ``max``; the inputs ``Min`` and ``Max`` replace the attributes.

    The rows of a sparse gradient are merged first. Source: Paddle op ``clip``.
    """
    if isinstance(x, SelectedRows):
        x = x.merged(xp)
        value = _clipped(xp, x.value, low, high, min, max)
        if xp is not np:  # repeated rows stay 0, whatever the bounds
            value[1:] *= (x.row_array[1:] != x.row_array[:-1]).reshape(-1, *[1] * (value.ndim - 1))
        return SelectedRows(x.row_array, x.height_, value)
    return _clipped(xp, x, low, high, min, max)


def _bounds(x: Any, low: Any, high: Any, least: float, most: float) -> tuple[Any, Any]:
    kind = x.dtype.type
    return (
        kind(least) if low is None else scalar(low),
        kind(most) if high is None else scalar(high),
    )


def _clipped(xp: Any, x: Any, low: Any, high: Any, least: float, most: float) -> Any:
    return xp.clip(x, *_bounds(x, low, high, least, most))


@clip.grad("X", "Min?", "Max?", "Out@GRAD", outputs="X@GRAD", dense=True)
def clip_grad(
    xp: Any, x: Any, low: Any, high: Any, d_out: Any, *, min: float = -1.0, max: float = 1.0
) -> Any:
    """The gradient, 0 where x is not strictly between the bounds."""
    least, most = _bounds(x, low, high, min, max)
    return d_out * ((x > least) & (x < most))


bends_nowhere(clip_grad)


def _infer_clipped(x: Spec, *, max_norm: float) -> Spec:
    require(max_norm > 0, f"max_norm must be positive, but is {max_norm}")
    return x


@op(
    "clip_by_norm",
    inputs="X",
    infer=_infer_clipped,
    sparse=("X",),
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"X": np.array([3.0, 4.0])},
            {"max_norm": 1.0},
            expected={"Out": np.array([0.6, 0.8])},
        ),
        Sample(
            {"X": np.array([3.0, 4.0])},
            {"max_norm": 6.0},
            expected={"Out": np.array([3.0, 4.0])},
        ),
        Sample({"X": r.normal((6, 4))}, {"max_norm": 2.5}),
        Sample({"X": SelectedRows(np.array([3, 0, 3]), 5, r.normal((3, 2)))}, {"max_norm": 1.0}),
        edge(
            {"X": np.zeros((3, 4))},
            "Out",
            "gives NaN for zeros; dpexec gives zeros",
            {"max_norm": 1.0},
        ),
    ],
    operand_ulps=2,
    capturable=True,
)
def clip_by_norm(xp: Any, x: Any, *, max_norm: float) -> Any:
    """``x``, scaled down to the Euclidean norm ``max_norm`` if its norm is larger.

    The rows of a sparse gradient are merged first. Source: Paddle op ``clip_by_norm``.
    """
    if isinstance(x, SelectedRows):
        x = x.merged(xp)
        return SelectedRows(x.row_array, x.height_, _scaled(xp, x.value, max_norm))
    return _scaled(xp, x, max_norm)


def _scaled(xp: Any, x: Any, max_norm: float) -> Any:
    limit = x.dtype.type(max_norm)
    norm = xp.sqrt((x * x).sum())
    return x * (limit / xp.maximum(norm, limit))


def _infer_norm(x: Spec) -> Spec:
    require_float(x)
    require(x.size, f"X {x} has no elements")
    return x.replace(shape=(1,), lod_level=0)


@op(
    "squared_l2_norm",
    inputs="X",
    infer=_infer_norm,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4))}),
        Sample({"X": r.normal((2, 1, 3))}),
        Sample({"X": np.array([3.0, 4.0])}, expected={"Out": np.array([25.0])}),
    ],
    operand_ulps=2,
    flops=per_element("X", 2),
)
def squared_l2_norm(xp: Any, x: Any) -> Any:
    """The sum of the squares of all elements. Source: Paddle op ``squared_l2_norm``."""
    return (x * x).sum().reshape(1)


@squared_l2_norm.grad("X", "Out@GRAD", dense=True, operand_ulps=1)
def squared_l2_norm_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``2 * x * d_out``."""
    return x * (2 * d_out.reshape(()))
