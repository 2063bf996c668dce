"""Batch normalization with sums over all devices, plane by plane."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.formulas import planes
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Doubles, Floats, Number, kernel
from dpexec.engine.kernels.math import lanes

_ZERO, _ONE = np.float32(0), np.float32(1)
_SMALLEST_PLANE = 4
"""Elements of a plane: for smaller planes, NumPy's loops over rows are faster."""


@lanes
def _total(x: Any, at: int, n: int) -> Any:
    total = 0.0
    for i in range(n):
        total += np.float64(x[at + i])
    return total


@lanes
def _squares(x: Any, at: int, n: int) -> Any:
    total = 0.0
    for i in range(n):
        total += np.float64(x[at + i]) * np.float64(x[at + i])
    return total


@lanes
def _along(x: Any, dy: Any, at: int, n: int, mean: Any, inverse: Any) -> Any:
    total = 0.0
    for i in range(n):
        total += np.float64((x[at + i] - mean) * inverse * dy[at + i])
    return total


@kernel
def _sums(batch: Count, channels: Count, size: Count, x: Floats, sums: Doubles) -> int:
    for c in range(channels):
        total = squares = 0.0
        for i in range(batch):
            total += _total(x, (i * channels + c) * size, size)
            squares += _squares(x, (i * channels + c) * size, size)
        sums[c], sums[channels + c] = total, squares
    sums[2 * channels] = batch * size
    return 0


@kernel
def _normalize(
    batch: Count, channels: Count, size: Count, kept: Number, epsilon: Number, x: Floats,
    scale: Floats, bias: Floats, mean: Floats, variance: Floats, sums: Doubles, y: Floats,
    mean_out: Floats, variance_out: Floats, used_means: Floats, inverses: Floats,
) -> int:  # fmt: skip
    for c in range(channels):
        middle = sums[c] / sums[2 * channels]
        used = np.float32(middle)
        spread = np.float32(max(sums[channels + c] / sums[2 * channels] - middle * middle, 0.0))
        mean_out[c] = mean[c] * kept + used * (_ONE - kept)
        variance_out[c] = variance[c] * kept + spread * (_ONE - kept)
        inverse = _ONE / np.sqrt(spread + epsilon)
        used_means[c], inverses[c] = used, inverse
        factor = scale[c] * inverse
        offset = bias[c] - used * factor
        for i in range(batch):
            at = (i * channels + c) * size
            for j in range(size):
                y[at + j] = x[at + j] * factor + offset
    return 0


@kernel
def _grad_sums(
    batch: Count, channels: Count, size: Count, x: Floats, means: Floats, inverses: Floats,
    dy: Floats, sums: Doubles, d_scale: Floats, d_bias: Floats,
) -> int:  # fmt: skip
    for c in range(channels):
        along = total = 0.0
        for i in range(batch):
            at = (i * channels + c) * size
            along += _along(x, dy, at, size, means[c], inverses[c])
            total += _total(dy, at, size)
        sums[c], sums[channels + c] = along, total
        d_scale[c], d_bias[c] = along, total
    return 0


@kernel
def _grad(
    batch: Count, channels: Count, size: Count, x: Floats, scale: Floats, means: Floats,
    inverses: Floats, dy: Floats, sums: Doubles, grad_sums: Doubles, dx: Floats,
) -> int:  # fmt: skip
    for c in range(channels):
        factor = scale[c] * inverses[c]
        d_scale = np.float32(grad_sums[c] / sums[2 * channels])
        d_bias = np.float32(grad_sums[channels + c] / sums[2 * channels])
        slope, offset, mean = -factor * inverses[c] * d_scale, factor * d_bias, means[c]
        for i in range(batch):
            at = (i * channels + c) * size
            for j in range(size):
                dx[at + j] = (x[at + j] - mean) * slope + dy[at + j] * factor - offset
    return 0


def _usable(data_layout: str, x: Value, *values: Value, sums: Value | None = None) -> bool:
    if sums is not None and sums.dtype != "float64":
        return False
    return data_layout == "NCHW" and single(x, *values) and planes(x)[2] >= _SMALLEST_PLANE


@lowering("sync_batch_norm_sums")
def sync_batch_norm_sums(code: Code, x: Value, sums: Value, *, data_layout: str) -> Any:
    """Two passes over every plane, in double precision."""
    if not _usable(data_layout, x):
        return False
    code.emit(_sums, *planes(x), x, sums)


@lowering("sync_batch_norm")
def sync_batch_norm(
    code: Code, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, sums: Value,
    y: Value, *states: Value | None, momentum: float, epsilon: float, data_layout: str,
) -> Any:  # fmt: skip
    """One pass over every plane."""
    if not _usable(data_layout, x, scale, bias, sums=sums):
        return False
    made = [state or code.scratch(x.shape[1]) for state in states]
    factors = float(momentum), float(epsilon)
    code.emit(_normalize, *planes(x), *factors, x, scale, bias, mean, variance, sums, y, *made)


@lowering("sync_batch_norm_grad_sums")
def sync_batch_norm_grad_sums(
    code: Code, x: Value, mean: Value, inverse: Value, d_y: Value, sums: Value,
    d_scale: Value | None, d_bias: Value | None, *, data_layout: str,
) -> Any:  # fmt: skip
    """Two passes over every plane, in double precision."""
    if not _usable(data_layout, x, d_y):
        return False
    made = [grad or code.scratch(x.shape[1]) for grad in (d_scale, d_bias)]
    code.emit(_grad_sums, *planes(x), x, mean, inverse, d_y, sums, *made)


@lowering("sync_batch_norm_grad")
def sync_batch_norm_grad(
    code: Code, x: Value, scale: Value, mean: Value, inverse: Value, d_y: Value, sums: Value,
    grad_sums: Value, dx: Value, *, data_layout: str,
) -> Any:  # fmt: skip
    """One pass over every plane."""
    if not _usable(data_layout, x, d_y, sums=sums):
        return False
    code.emit(_grad, *planes(x), x, scale, mean, inverse, d_y, sums, grad_sums, dx)
