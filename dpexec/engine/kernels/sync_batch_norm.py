"""Batch normalization by the sums over all devices, plane by plane."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.formulas import planes
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import count, doubles, floats, kernel, number
from dpexec.engine.kernels.math import lanes

_ZERO, _ONE = np.float32(0), np.float32(1)
_SMALLEST_PLANE = 4
"""Elements: where planes are smaller, NumPy's loops over rows are faster."""


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
def _sums(p: int) -> int:
    batch, channels, size, x, sums = (
        count(p, 0),
        count(p, 1),
        count(p, 2),
        floats(p, 3),
        doubles(p, 4),
    )
    for c in range(channels):
        total = squares = 0.0
        for i in range(batch):
            total += _total(x, (i * channels + c) * size, size)
            squares += _squares(x, (i * channels + c) * size, size)
        sums[c], sums[channels + c] = total, squares
    sums[2 * channels] = batch * size
    return 0


@kernel
def _normalize(p: int) -> int:
    batch, channels, size, kept, epsilon = (
        count(p, 0), count(p, 1), count(p, 2), number(p, 3), number(p, 4),
    )  # fmt: skip
    x, scale, bias, mean, variance = (
        floats(p, 5), floats(p, 6), floats(p, 7), floats(p, 8), floats(p, 9),
    )  # fmt: skip
    sums, y, mean_out, variance_out = doubles(p, 10), floats(p, 11), floats(p, 12), floats(p, 13)
    used_means, inverses = floats(p, 14), floats(p, 15)
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
def _grad_sums(p: int) -> int:
    batch, channels, size, x, means = (
        count(p, 0), count(p, 1), count(p, 2), floats(p, 3), floats(p, 4),
    )  # fmt: skip
    inverses, dy, sums, d_scale, d_bias = (
        floats(p, 5), floats(p, 6), doubles(p, 7), floats(p, 8), floats(p, 9),
    )  # fmt: skip
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
def _grad(p: int) -> int:
    batch, channels, size, x, scale = (
        count(p, 0), count(p, 1), count(p, 2), floats(p, 3), floats(p, 4),
    )  # fmt: skip
    means, inverses, dy = floats(p, 5), floats(p, 6), floats(p, 7)
    sums, grad_sums, dx = doubles(p, 8), doubles(p, 9), floats(p, 10)
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
