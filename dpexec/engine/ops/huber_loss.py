"""``huber_loss`` and ``smooth_l1_loss``: squares near 0, absolute values farther away."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._edges import EXTREMA, spoiled
from dpexec.engine.ops._shapes import require_float, require_shape_of


def _check_alike(x: Spec, y: Spec) -> None:
    require(x.rank, f"X {x} must have a dimension")
    require_shape_of(y, x, "Y", "X")


def _infer(x: Spec, y: Spec) -> tuple[Spec, Spec]:
    require_float(x)
    _check_alike(x, y)
    return x.replace(lod_level=0), x


@op(
    "huber_loss",
    ulps=4,
    inputs="X Y",
    outputs="Residual Out",
    infer=_infer,
    samples=lambda r: [
        *(
            Sample({"X": r.normal((6, 1)) * 2, "Y": r.normal((6, 1))}, {"delta": delta})
            for delta in (1.0, 0.3, 5.0)
        ),
        spoiled(
            Sample({"X": r.normal((5, 1)), "Y": r.normal((5, 1))}, {"delta": 1.0}),
            "X",
            np.nan,
            "X@GRAD Y@GRAD",
            EXTREMA,
        ),
    ],
    capturable=True,
)
def huber_loss(xp: Any, x: Any, y: Any, *, delta: float) -> tuple[Any, Any]:
    """``r * r / 2`` where ``abs(r) <= delta``, else ``delta * (abs(r) - delta / 2)``; r = y - x.

    Source: Paddle op ``huber_loss``.
    """
    limit = x.dtype.type(delta)
    residual = y - x
    size = abs(residual)
    near = xp.minimum(size, limit)
    return residual, near * (size - near / 2)


def _infer_grad(residual: Spec, d_out: Spec) -> tuple[Spec, Spec]:
    return residual, residual


@huber_loss.grad("Residual", "Out@GRAD", infer=_infer_grad, operand_ulps=1)
def huber_loss_grad(xp: Any, residual: Any, d_out: Any, *, delta: float = 1.0) -> Any:
    """The residual, cut off at ``delta`` on both sides."""
    limit = residual.dtype.type(delta)
    d_y = xp.clip(residual, -limit, limit) * d_out
    return -d_y, d_y


def _infer_smooth(x: Spec, y: Spec, inside: Spec | None, outside: Spec | None) -> tuple[Spec, Spec]:
    require_float(x)
    _check_alike(x, y)
    require(x.rank >= 2, f"X {x} must have a batch and at least one more dimension")
    require((inside is None) == (outside is None), "InsideWeight and OutsideWeight go together")
    for weight in (inside, outside):
        if weight is not None:
            _check_alike(x, weight)
    dense = x.replace(lod_level=0)
    return dense, dense.replace(shape=(x.shape[0], 1))


@op(
    "smooth_l1_loss",
    inputs="X Y InsideWeight? OutsideWeight?",
    outputs="Diff Out",
    infer=_infer_smooth,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4)), "Y": r.normal((3, 4))}, {"sigma": 1.5}),
        Sample(
            {slot: r.normal((3, 2, 2)) for slot in ("X", "Y", "InsideWeight", "OutsideWeight")},
            grad=("X", "Y"),
        ),
        Sample({"X": r.normal((4, 1)) * 2, "Y": r.normal((4, 1))}),
    ],
    operand_ulps=2,
    capturable=True,
    flops=per_element("X", 3),
)
def smooth_l1_loss(
    xp: Any, x: Any, y: Any, inside: Any = None, outside: Any = None, *, sigma: float = 1.0
) -> tuple[Any, Any]:
    """The sum per sample of ``s*d*d/2`` where ``abs(d) < 1/s``, else ``abs(d) - 1/(2*s)``.

    ``s`` is ``sigma**2`` and ``d`` is ``(x - y) * InsideWeight``; ``OutsideWeight`` multiplies
    the terms. Source: Paddle op ``smooth_l1_loss``; Girshick 2015.
    """
    square = x.dtype.type(sigma * sigma)
    diff = x - y
    if inside is not None:
        diff *= inside
    size = abs(diff)
    near = xp.minimum(size, 1 / square)
    terms = near * (size - near / 2) * square
    if outside is not None:
        terms *= outside
    total = terms.reshape(x.shape[0], math.prod(x.shape[1:])).sum(axis=1, keepdims=True)
    return diff, total


def _infer_smooth_grad(
    diff: Spec, inside: Spec | None, outside: Spec | None, d_out: Spec
) -> tuple[Spec, Spec]:
    return diff, diff


@smooth_l1_loss.grad(
    "Diff InsideWeight? OutsideWeight? Out@GRAD",
    outputs="X@GRAD Y@GRAD",
    infer=_infer_smooth_grad,
    operand_ulps=1,
)
def smooth_l1_loss_grad(
    xp: Any, diff: Any, inside: Any, outside: Any, d_out: Any, *, sigma: float = 1.0
) -> tuple[Any, Any]:
    """``s * d``, cut off at 1 on both sides."""
    d_x = xp.clip(diff * diff.dtype.type(sigma * sigma), -1, 1)
    for weight in (inside, outside):
        if weight is not None:
            d_x *= weight
    d_x *= d_out.reshape(-1, *(1,) * (diff.ndim - 1))
    return d_x, -d_x
