"""``p_norm``, ``l1_norm``, ``dist``, ``squared_l2_distance``: lengths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._edges import GROWN, NUMBERS, smaller
from dpexec.engine.ops._elementwise import broadcast_shape, unbroadcast
from dpexec.engine.ops._shapes import (
    infer_number,
    product,
    require_axis,
    require_float,
    require_same_dtype,
    same_dims,
    spread,
)


def _power_norm(xp: Any, x: Any, order: float, axis: int | None = None, keep: bool = False) -> Any:
    """``sum(abs(x) ** order) ** (1 / order)`` with its limits for 0 and the infinities."""
    size = xp.abs(x)
    if order == 0:
        return (x != 0).sum(axis=axis, keepdims=keep).astype(x.dtype)
    if math.isinf(order):
        return (size.max if order > 0 else size.min)(axis=axis, keepdims=keep)
    kind = x.dtype.type
    return (size ** kind(order)).sum(axis=axis, keepdims=keep) ** kind(1 / order)


def _power_norm_grad(
    xp: Any, x: Any, norm: Any, d_norm: Any, order: float, small: float = 0.0
) -> Any:
    """The gradient of :func:`_power_norm`; ``norm`` and ``d_norm`` broadcast to ``x``."""
    if order == 0:
        return xp.zeros_like(x)
    size, kind = xp.abs(x), x.dtype.type
    if math.isinf(order):
        return xp.sign(x) * (size == norm) * d_norm
    with np.errstate(divide="ignore", invalid="ignore"):
        grad = (size / (norm + kind(small))) ** kind(order - 1)
    return xp.where(x == 0, kind(0), xp.sign(x) * grad * d_norm)


def _infer_p_norm(x: Spec, *, porder: float = 2.0, axis: int = -1, keepdim: bool = False) -> Spec:
    require_float(x)
    require(0 < porder < math.inf, f"porder is {porder}, but must be positive and finite")
    at = require_axis(axis, x)
    rest = x.shape[at + 1 :]
    return x.replace(shape=(*x.shape[:at], *(1,) * keepdim, *rest) or (1,), lod_level=0)


@op(
    "p_norm",
    inputs="X",
    infer=_infer_p_norm,
    attrs={"epsilon": 1e-12},
    samples=lambda r: [
        Sample({"X": r.away_from(0.0, (3, 4))}),
        Sample({"X": r.away_from(0.0, (2, 3, 4))}, {"porder": 3.0, "axis": 1, "keepdim": True}),
        Sample({"X": r.away_from(0.0, (2, 3, 4))}, {"porder": 1.0, "axis": 0}),
        Sample({"X": r.away_from(0.0, (5,))}, {"porder": 2.5, "keepdim": True}),
        Sample({"X": np.array([[3.0, -4.0]])}, smooth=False, expected={"Out": np.array([5.0])}),
        smaller(
            Sample({"X": NUMBERS}, {"porder": 3.0}),
            1e-6,
            "X@GRAD",
            GROWN,
        ),
    ],
    operand_ulps=4,
)
def p_norm(xp: Any, x: Any, *, porder: float = 2.0, axis: int = -1, keepdim: bool = False) -> Any:
    """``sum(abs(x) ** porder) ** (1 / porder)`` along an axis. Source: Paddle op ``p_norm``."""
    norm = _power_norm(xp, x, porder, axis, keepdim)
    return norm.reshape(norm.shape or (1,))


@p_norm.grad("X", "Out", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=2)
def p_norm_grad(
    xp: Any,
    x: Any,
    out: Any,
    d_out: Any,
    *,
    porder: float = 2.0,
    axis: int = -1,
    epsilon: float = 1e-12,
) -> Any:
    """``sign(x) * (abs(x) / (norm + epsilon)) ** (porder - 1)``."""
    axes = (axis % x.ndim,)
    norm, d_norm = (spread(xp, values, x.shape, axes) for values in (out, d_out))
    return _power_norm_grad(xp, x, norm, d_norm, porder, epsilon)


@op(
    "l1_norm",
    inputs="X",
    infer=infer_number,
    samples=lambda r: [
        Sample({"X": r.away_from(0.0, (3, 4))}),
        Sample({"X": r.away_from(0.0, (2, 3, 4))}),
        Sample({"X": np.array([3.0, 0.0, -4.0])}, smooth=False, expected={"Out": np.array([7.0])}),
    ],
    operand_ulps=2,
)
def l1_norm(xp: Any, x: Any) -> Any:
    """The sum of the absolute values, ``(1,)``. Source: Paddle op ``l1_norm``."""
    return xp.abs(x).sum().reshape(1)


@l1_norm.grad("X", "Out@GRAD", dense=True, operand_ulps=1)
def l1_norm_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``sign(x)`` times the gradient."""
    return xp.sign(x) * d_out.reshape(())


def _infer_dist(x: Spec, y: Spec) -> Spec:
    require_float(x)
    require_same_dtype(x, y)
    broadcast_shape(x, y, -1)
    return x.replace(shape=(1,), lod_level=0)


def _dist_samples(r: SampleRng) -> list[Sample]:
    x = r.distinct((3, 4))
    y = x + r.away_from(0.0, (3, 4))
    return [
        Sample({"X": x, "Y": y}, {"p": 2.0}),
        Sample({"X": x, "Y": y}, {"p": 3.5}),
        Sample({"X": x, "Y": y}, {"p": 0.0}),
        Sample({"X": x, "Y": y}, {"p": math.inf}),
        Sample({"X": x, "Y": y}, {"p": -math.inf}),
        Sample({"X": r.normal((2, 1, 4)), "Y": r.normal((3, 1))}, {"p": 1.0}),
    ]


@op("dist", inputs="X Y", infer=_infer_dist, samples=_dist_samples, operand_ulps=8)
def dist(xp: Any, x: Any, y: Any, *, p: float = 2.0) -> Any:
    """``sum(abs(x - y) ** p) ** (1 / p)`` over all elements, ``(1,)``.

    For 0 it is the number of differing elements, for the infinities the largest and the smallest
    difference.
    Source: Paddle op ``dist``.
    """
    return _power_norm(xp, x - y, p).reshape(1)


@dist.grad("X", "Y", "Out", "Out@GRAD", outputs="X@GRAD Y@GRAD", dense=True)
def dist_grad(
    xp: Any,
    x: Any,
    y: Any,
    out: Any,
    d_out: Any,
    *,
    p: float = 2.0,
    needs: tuple[bool, bool],
) -> tuple[Any, Any]:
    """The gradient of the norm of the difference, and its negative."""
    grad = _power_norm_grad(xp, x - y, out.reshape(()), d_out.reshape(()), p)
    return (
        unbroadcast(xp, grad, x, y, -1) if needs[0] else None,
        -unbroadcast(xp, grad, y, x, -1) if needs[1] else None,
    )


def _infer_squared_distance(x: Spec, y: Spec) -> tuple[Spec, Spec]:
    require_same_dtype(x, y)
    require(
        x.rank == y.rank >= 2 and same_dims(x.shape[1:], y.shape[1:]),
        f"Y {y} must have the shape of X {x}, but for the first dimension",
    )
    require(
        y.shape[0] == 1 or dims_match(x.shape[0], y.shape[0]),
        f"Y {y} must have one row or as many as X {x}",
    )
    difference = x.replace(shape=(x.shape[0], product(x.shape[1:])), lod_level=0)
    return difference, x.replace(shape=(x.shape[0], 1))


@op(
    "squared_l2_distance",
    inputs="X Y",
    outputs="sub_result Out",
    infer=_infer_squared_distance,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4)), "Y": r.normal((3, 4))}),
        Sample({"X": r.normal((3, 4)), "Y": r.normal((1, 4))}),
        Sample({"X": r.normal((2, 3, 2)), "Y": r.normal((2, 3, 2))}),
    ],
    operand_ulps=2,
    flops=per_element("X", 3),
)
def squared_l2_distance(xp: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """``sum((x - y) ** 2)`` per row, ``(N, 1)``; one row of ``Y`` serves all rows of ``X``.

    The differences are returned, too. Source: Paddle op ``squared_l2_distance``.
    """
    difference = (x - y).reshape(x.shape[0], math.prod(x.shape[1:]))
    return difference, (difference * difference).sum(axis=1, keepdims=True)


@squared_l2_distance.grad(
    "X", "Y", "sub_result", "Out@GRAD", outputs="X@GRAD Y@GRAD", dense=True, operand_ulps=1
)
def squared_l2_distance_grad(
    xp: Any, x: Any, y: Any, difference: Any, d_out: Any, *, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """Twice the difference, and its negative, summed over the rows that share a row of Y."""
    grad = 2 * difference * d_out
    d_y = None
    if needs[1]:
        rows = grad if y.shape[0] == x.shape[0] else grad.sum(axis=0)
        d_y = -rows.reshape(y.shape)
    return grad.reshape(x.shape) if needs[0] else None, d_y
