"""``layer_norm``: every sample with mean 0 and variance 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._costs import NORM
from dpexec.engine.ops._norms import (
    check_epsilon,
    inverse_deviation,
    standardized,
    standardized_grad,
    standardized_grad_grad,
)
from dpexec.engine.ops._shapes import product, require_float


def _infer(
    x: Spec,
    scale: Spec | None,
    bias: Spec | None,
    *,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-5,
) -> tuple[Spec, Spec, Spec]:
    require_float(x)
    require(
        0 < begin_norm_axis < x.rank,
        f"begin_norm_axis {begin_norm_axis} must be an axis of X {x} other than the first",
    )
    check_epsilon(epsilon)
    width = product(x.shape[begin_norm_axis:])
    for name, spec in (("Scale", scale), ("Bias", bias)):
        require(
            spec is None or (spec.rank == 1 and dims_match(spec.shape[0], width)),
            f"{name} {spec} must have the {width} elements that are normalised together",
        )
    statistics = x.replace(shape=(product(x.shape[:begin_norm_axis]),), lod_level=0)
    return x, statistics, statistics


def _rows(x: Any, begin_norm_axis: int) -> Any:
    return x.reshape(math.prod(x.shape[:begin_norm_axis]), math.prod(x.shape[begin_norm_axis:]))


@op(
    "layer_norm",
    inputs="X Scale? Bias?",
    outputs="Y Mean Variance",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4)), "Scale": r.normal((4,)), "Bias": r.normal((4,))}),
        Sample({"X": r.normal((2, 3, 2, 2)), "Scale": r.normal((4,))}, {"begin_norm_axis": 2}),
        Sample({"X": r.normal((2, 3, 2)), "Bias": r.normal((6,))}),
    ],
    operand_ulps=4,
    capturable=True,
    flops=per_element("X", NORM),
)
def layer_norm(
    xp: Any,
    x: Any,
    scale: Any = None,
    bias: Any = None,
    *,
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> tuple[Any, Any, Any]:
    """``scale * (x - mean) / sqrt(variance + epsilon) + bias`` over axes ``begin_norm_axis`` on.

    ``Mean`` and ``Variance`` have one element per row that is normalised.
    Source: Paddle op ``layer_norm``; Ba, Kiros, Hinton 2016.
    """
    y, mean, variance = standardized(xp, _rows(x, begin_norm_axis), epsilon)
    if scale is not None:
        y *= scale
    if bias is not None:
        y += bias
    return y.reshape(x.shape), mean.reshape(-1), variance.reshape(-1)


@layer_norm.grad("X", "Scale?", "Bias?", "Mean", "Variance", "Y@GRAD", dense=True, operand_ulps=4)
def layer_norm_grad(
    xp: Any,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    d_y: Any,
    *,
    needs: Sequence[bool] = (True, True, True),
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> tuple[Any, Any, Any]:
    """Mean and variance depend on ``X`` too."""
    rows, d_rows = _rows(x, begin_norm_axis), _rows(d_y, begin_norm_axis)
    inverse = inverse_deviation(xp, variance, epsilon)[:, None]
    normal = (rows - mean[:, None]) * inverse
    d_x = d_scale = d_bias = None
    if needs[2]:
        d_bias = d_rows.sum(axis=0)
    if needs[1]:
        d_scale = (d_rows * normal).sum(axis=0)
    if needs[0]:
        d_x = d_rows * scale if scale is not None else d_rows.copy()
        d_x = standardized_grad(d_x, normal, inverse).reshape(x.shape)
    return d_x, d_scale, d_bias


def _infer_double(
    x: Spec, scale: Spec | None, mean: Spec, variance: Spec, d_y: Spec, *flows: Spec | None
) -> tuple[Spec, Spec | None, Spec]:
    return x, scale, d_y


@layer_norm_grad.double_grad(
    "X", "Scale?", "Mean", "Variance", "DY", "DDX?", "DDScale?", "DDBias?",
    outputs="DX DScale DDY", infer=_infer_double,
)  # fmt: skip
def layer_norm_grad_grad(
    xp: Any,
    x: Any,
    scale: Any,
    mean: Any,
    variance: Any,
    d_y: Any,
    ddx: Any,
    ddscale: Any,
    ddbias: Any,
    *,
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> tuple[Any, Any, Any]:
    """Gradients of X, Scale and ``d_y``, from those of the gradients of X, Scale and Bias."""
    inverse = inverse_deviation(xp, variance, epsilon)[:, None]
    normal = (_rows(x, begin_norm_axis) - mean[:, None]) * inverse
    d_y, ddx = (xp.zeros_like(normal) if a is None else a.reshape(normal.shape) for a in (d_y, ddx))
    scales = (
        xp.full(normal.shape[1:], missing, x.dtype) if a is None else a
        for a, missing in ((scale, 1), (ddscale, 0), (ddbias, 0))
    )
    d_x, d_scale, ddy = standardized_grad_grad(normal, inverse, d_y, ddx, tuple(scales))
    return d_x.reshape(x.shape), d_scale.sum(axis=0), ddy.reshape(x.shape)
