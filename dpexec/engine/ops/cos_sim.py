"""``cos_sim``: the cosine of the angle between vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import require_float, same_dims

SMALLEST_SQUARE = 1e-8  # of a norm; nothing is divided by zero


def _infer(x: Spec, y: Spec) -> tuple[Spec, Spec, Spec]:
    require_float(x)
    require(
        x.rank >= 2 and same_dims(x.shape[1:], y.shape[1:]),
        f"Y {y} must have the shape of X {x}, but for the first dimension",
    )
    require(
        y.shape[0] == 1 or dims_match(x.shape[0], y.shape[0]),
        f"Y {y} must have one row or as many as X {x}",
    )
    rows = x.replace(shape=(x.shape[0], 1))
    x_norms, y_norms = (s.replace(shape=(s.shape[0], 1), lod_level=0) for s in (x, y))
    return rows, x_norms, y_norms


@op(
    "cos_sim",
    inputs="X Y",
    outputs="Out XNorm YNorm",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((4, 3)), "Y": r.normal((4, 3))}),
        Sample({"X": r.normal((4, 2, 3)), "Y": r.normal((1, 2, 3))}),
        Sample({"X": r.normal((3, 5)) * 2, "Y": r.normal((1, 5))}),
    ],
    operand_ulps=4,
    precision="black",
)
def cos_sim(xp: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """``x . y / (norm(x) * norm(y))`` per row; one row of ``Y`` serves all rows of ``X``.

    The norms are returned, too, ``(rows, 1)`` each, none smaller than 0.0001. Source: Paddle op
    ``cos_sim``.
    """
    x, y = _rows(x), _rows(y)
    x_norm, y_norm = (
        xp.sqrt(xp.maximum((v * v).sum(axis=1, keepdims=True), SMALLEST_SQUARE)) for v in (x, y)
    )
    return (x * y).sum(axis=1, keepdims=True) / (x_norm * y_norm), x_norm, y_norm


@cos_sim.grad("X", "Y", "Out", "XNorm", "YNorm", "Out@GRAD", dense=True, operand_ulps=2)
def cos_sim_grad(
    xp: Any,
    x: Any,
    y: Any,
    out: Any,
    x_norm: Any,
    y_norm: Any,
    d_out: Any,
    *,
    needs: Sequence[bool] = (True, True),
) -> tuple[Any, Any]:
    """The component of the other vector that is orthogonal to this one, scaled."""
    x_unit, y_unit = _rows(x) / x_norm, _rows(y) / y_norm
    d_x = d_y = None
    if needs[0]:
        d_x = ((y_unit - out * x_unit) * (d_out / x_norm)).reshape(x.shape)
    if needs[1]:
        d_y = (x_unit - out * y_unit) * (d_out / y_norm)
        if y.shape[0] != d_y.shape[0]:
            d_y = d_y.sum(axis=0)
        d_y = d_y.reshape(y.shape)
    return d_x, d_y


def _rows(x: Any) -> Any:
    return x.reshape(x.shape[0], math.prod(x.shape[1:]))
