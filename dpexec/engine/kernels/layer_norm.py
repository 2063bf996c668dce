"""Layer normalisation, row by row, so that each row stays in the cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Number, kernel
from dpexec.engine.kernels.math import lanes

_ZERO, _ONE = np.float32(0), np.float32(1)


@lanes
def _mean(x: Any, at: int, n: int) -> Any:
    total = _ZERO
    for i in range(n):
        total += x[at + i]
    return total / np.float32(n)


@lanes
def _variance(x: Any, at: int, n: int, mean: Any) -> Any:
    total = _ZERO
    for i in range(n):
        total += (x[at + i] - mean) * (x[at + i] - mean)
    return total / np.float32(n)


@kernel(parts="rows:y*n x*n means variances")
def _layer_norm(
    rows: Count, n: Count, epsilon: Number, scaled: Count, shifted: Count, x: Floats, scale: Floats,
    bias: Floats, y: Floats, means: Floats, variances: Floats,
) -> int:  # fmt: skip
    for row in range(rows):
        at = row * n
        mean = _mean(x, at, n)
        variance = _variance(x, at, n, mean)
        inverse = _ONE / np.sqrt(variance + epsilon)
        means[row], variances[row] = mean, variance
        if scaled and shifted:
            for i in range(n):
                y[at + i] = (x[at + i] - mean) * inverse * scale[i] + bias[i]
        else:
            for i in range(n):
                y[at + i] = (x[at + i] - mean) * inverse
            if scaled:
                for i in range(n):
                    y[at + i] *= scale[i]
            if shifted:
                for i in range(n):
                    y[at + i] += bias[i]
    return 0


@lanes
def _mean_product(x: Any, y: Any, n: int) -> Any:
    total = _ZERO
    for i in range(n):
        total += x[i] * y[i]
    return total / np.float32(n)


@kernel
def _layer_norm_grad(
    rows: Count, n: Count, epsilon: Number, scaled: Count, x: Floats, scale: Floats, means: Floats,
    variances: Floats, dy: Floats, dx: Floats, d_scale: Floats, d_bias: Floats, normal: Floats,
    weighted: Floats,
) -> int:  # fmt: skip
    for i in range(n):
        d_scale[i] = _ZERO
    for i in range(n):
        d_bias[i] = _ZERO
    for row in range(rows):
        at = row * n
        mean, inverse = means[row], _ONE / np.sqrt(variances[row] + epsilon)
        for i in range(n):
            normal[i] = (x[at + i] - mean) * inverse
        for i in range(n):
            d_scale[i] += dy[at + i] * normal[i]
        for i in range(n):
            d_bias[i] += dy[at + i]
        if scaled:
            for i in range(n):
                weighted[i] = dy[at + i] * scale[i]
        else:
            for i in range(n):
                weighted[i] = dy[at + i]
        along, across = _mean_product(weighted, normal, n), _mean(weighted, 0, n)
        for i in range(n):
            dx[at + i] = (weighted[i] - across - normal[i] * along) * inverse
    return 0


def _sizes(x: Value, axis: int) -> tuple[int, int]:
    return math.prod(x.shape[:axis]), math.prod(x.shape[axis:])


@lowering("layer_norm")
def layer_norm(
    code: Code, x: Value, scale: Value | None, bias: Value | None, y: Value, mean: Value | None,
    variance: Value | None, *, begin_norm_axis: int, epsilon: float,
) -> Any:  # fmt: skip
    """Mean, variance and result of one row after another."""
    if not single(x, scale, bias):
        return False
    rows, n = _sizes(x, begin_norm_axis)
    mean, variance = mean or code.scratch(rows), variance or code.scratch(rows)
    code.emit(
        _layer_norm, rows, n, float(epsilon), scale is not None, bias is not None,
        x, scale or 0, bias or 0, y, mean, variance,
    )  # fmt: skip


@lowering("layer_norm_grad")
def layer_norm_grad(
    code: Code, x: Value, scale: Value | None, bias: Value | None, mean: Value, variance: Value,
    d_y: Value, dx: Value | None, d_scale: Value | None, d_bias: Value | None,
    *, begin_norm_axis: int, epsilon: float,
) -> Any:  # fmt: skip
    """All three gradients of one row after another."""
    if not single(x, scale, bias, d_y):
        return False
    rows, n = _sizes(x, begin_norm_axis)
    dx = dx or code.scratch(rows, n)
    d_scale, d_bias = d_scale or code.scratch(n), d_bias or code.scratch(n)
    code.emit(
        _layer_norm_grad, rows, n, float(epsilon), scale is not None, x, scale or 0, mean, variance,
        d_y, dx, d_scale, d_bias, code.scratch(n), code.scratch(n),
    )  # fmt: skip
