"""Batch norm, on images with their channels last.

A pixel has too few channels for fast loops over channels alone. So kernels work on *tiles* of
several pixels, about a thousand elements: values per channel are repeated to the size of a tile,
and sums are first taken over tiles, then over the pixels of the tile.

A neighbouring relu is computed in the same loop (:attr:`Code.relu`, :attr:`Code.clipped`), as every
pass over a large image costs as much as its arithmetic. The results have the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Number, kernel

_ZERO, _ONE = np.float32(0), np.float32(1)
_TILE = 1024


@inline
def _repeat(tile: Any, channels: int, n: int) -> None:
    for i in range(channels, n):
        tile[i] = tile[i - channels]


@inline
def _fold(tile: Any, channels: int, n: int) -> None:
    """Add all pixels of a tile to its first pixel."""
    for start in range(channels, n, channels):
        for c in range(channels):
            tile[c] += tile[start + c]


@kernel
def _statistics(
    total: Count, channels: Count, tile: Count, x: Floats, mean: Floats, variance: Floats,
    near: Floats, sums: Floats, squares: Floats,
) -> int:  # fmt: skip
    """Mean and variance of every channel.

    The variance is computed around the mean of the first tile. So one pass is enough, without the
    rounding errors that squares of large means would cause.

    Arguments: elements, channels, elements of a tile, x, mean, variance, three tiles.
    """
    first = min(tile, total)
    for i in range(first):
        near[i] = x[i]
    _fold(near, channels, first)
    for c in range(channels):
        near[c] *= np.float32(channels) / np.float32(first)
    _repeat(near, channels, tile)
    for i in range(tile):
        sums[i] = _ZERO
        squares[i] = _ZERO
    for start in range(0, total, tile):
        for i in range(min(tile, total - start)):
            offset = x[start + i] - near[i]
            sums[i] += offset
            squares[i] += offset * offset
    _fold(sums, channels, tile)
    _fold(squares, channels, tile)
    share = np.float32(channels) / np.float32(total)
    for c in range(channels):
        offset = sums[c] * share
        mean[c] = near[c] + offset
        variance[c] = max(squares[c] * share - offset * offset, _ZERO)
    return 0


@kernel
def _moving(
    channels: Count, mean: Floats, variance: Floats, used_mean: Floats, used_variance: Floats,
    saved_mean: Floats, inverse: Floats, mean_out: Floats, variance_out: Floats, kept: Number,
    epsilon: Number,
) -> int:  # fmt: skip
    """The moving statistics, and the inverse standard deviation.

    Arguments: channels; moving mean and variance before; mean and variance of this batch; results:
    saved mean, inverse deviation, moving mean, moving variance; momentum, epsilon.
    """
    for c in range(channels):
        center, spread = used_mean[c], used_variance[c]
        mean_out[c] = mean[c] * kept + center * (_ONE - kept)
        variance_out[c] = variance[c] * kept + spread * (_ONE - kept)
        saved_mean[c] = center
        inverse[c] = _ONE / np.sqrt(spread + epsilon)
    return 0


@kernel
def _scaled(
    total: Count, channels: Count, tile: Count, x: Floats, scale: Floats, bias: Floats,
    mean: Floats, inverse: Floats, y: Floats, factors: Floats, terms: Floats, relu: Count,
) -> int:  # fmt: skip
    """Every element times a factor, plus a term of its channel; then a relu, if one is fused.

    Arguments: elements, channels, elements of a tile, x, scale, bias, mean, inverse deviation, y,
    two tiles, 1 for a relu or 0.
    """
    for c in range(channels):
        factor = scale[c] * inverse[c]
        factors[c] = factor
        terms[c] = bias[c] - mean[c] * factor
    _repeat(factors, channels, tile)
    _repeat(terms, channels, tile)
    for start in range(0, total, tile):
        for i in range(min(tile, total - start)):
            scaled = x[start + i] * factors[i] + terms[i]
            y[start + i] = max(scaled, _ZERO) if relu else scaled
    return 0


@inline
def _passed(dy: Any, y: Any, i: int, relu: Any) -> Any:
    """The gradient of an element behind a fused relu: 0 where the relu's result is not positive."""
    return dy[i] if not relu or y[i] > _ZERO else _ZERO


@kernel
def _sums(
    total: Count, channels: Count, tile: Count, x: Floats, dy: Floats, mean: Floats,
    inverse: Floats, d_scale: Floats, d_bias: Floats, center: Floats, along: Floats, sums: Floats,
    relu: Count, y: Floats,
) -> int:  # fmt: skip
    """Gradients of scale and bias.

    Arguments: elements, channels, elements of a tile, x, dy, mean, inverse deviation, d_scale,
    d_bias, three tiles, 1 for a relu or 0, its result.
    """
    for c in range(channels):
        center[c] = mean[c]
    _repeat(center, channels, tile)
    for i in range(tile):
        along[i] = _ZERO
        sums[i] = _ZERO
    for start in range(0, total, tile):
        for i in range(min(tile, total - start)):
            came = _passed(dy, y, start + i, relu)
            along[i] += came * (x[start + i] - center[i])
            sums[i] += came
    _fold(along, channels, tile)
    _fold(sums, channels, tile)
    for c in range(channels):
        d_scale[c] = along[c] * inverse[c]
        d_bias[c] = sums[c]
    return 0


@kernel
def _gradient(
    total: Count, channels: Count, tile: Count, x: Floats, dy: Floats, scale: Floats, mean: Floats,
    inverse: Floats, d_scale: Floats, d_bias: Floats, dx: Floats, depends: Number, center: Floats,
    factors: Floats, slopes: Floats, terms: Floats, relu: Count, y: Floats,
) -> int:  # fmt: skip
    """The gradient of x.

    Arguments: elements, channels, elements of a tile, x, dy, scale, mean, inverse deviation,
    d_scale, d_bias, dx, 1 if the statistics depend on x or 0, four tiles, 1 for a relu or 0, its
    result.
    """
    for c in range(channels):
        factor = scale[c] * inverse[c]
        share = depends * factor * np.float32(channels) / np.float32(total)
        center[c] = mean[c]
        factors[c] = factor
        slopes[c] = share * inverse[c] * d_scale[c]
        terms[c] = share * d_bias[c]
    _repeat(center, channels, tile)
    _repeat(factors, channels, tile)
    _repeat(slopes, channels, tile)
    _repeat(terms, channels, tile)
    for start in range(0, total, tile):
        for i in range(min(tile, total - start)):
            came = _passed(dy, y, start + i, relu)
            if depends > _ZERO:
                off = x[start + i] - center[i]
                dx[start + i] = came * factors[i] - off * slopes[i] - terms[i]
            else:
                dx[start + i] = came * factors[i]
    return 0


def _channels_last(code: Code, x: Value, data_layout: str) -> Value:
    return code.laid(x, data_layout != "NHWC")


def _sizes(x: Value, channels: Value) -> tuple[int, int, int]:
    n = channels.size
    return x.size, n, n * max(1, _TILE // n)


def _single(*values: Value | None) -> bool:
    return all(value is None or (value.dtype == "float32" and value.size) for value in values)


@lowering("batch_norm", layout="own")
def batch_norm(
    code: Code,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    momentum_tensor: Value | None,
    y: Value,
    mean_out: Value,
    variance_out: Value,
    saved_mean: Value | None,
    saved_inverse: Value | None,
    reserve: Value | None,
    *,
    momentum: float,
    epsilon: float,
    data_layout: str,
    is_test: bool,
    use_global_stats: bool,
    trainable_statistics: bool,
) -> Any:
    """One pass for the statistics and one for the result."""
    if not _single(x, scale, bias) or momentum_tensor is not None or x.size == scale.size:
        return False
    sizes = _sizes(x, scale)
    tiles = [code.scratch(sizes[2]) for _ in range(3)]
    x = _channels_last(code, x, data_layout)
    y.channels_last = y.has_planes and data_layout != "NHWC"
    saved_mean = saved_mean or code.scratch(scale.size)
    saved_inverse = saved_inverse or code.scratch(scale.size)
    used_mean, used_variance, kept = mean, variance, 1.0
    if not (use_global_stats or (is_test and not trainable_statistics)):
        used_mean, used_variance, kept = saved_mean, saved_inverse, float(momentum)
        code.emit(_statistics, *sizes, x, used_mean, used_variance, *tiles)
    code.emit(
        _moving, scale.size, mean, variance, used_mean, used_variance, saved_mean, saved_inverse,
        mean_out, variance_out, kept, float(epsilon),
    )  # fmt: skip
    code.emit(
        _scaled, *sizes, x, scale, bias, saved_mean, saved_inverse, y, *tiles[:2], int(code.relu)
    )


@lowering("batch_norm_grad", layout="own")
def batch_norm_grad(
    code: Code,
    x: Value,
    scale: Value,
    bias: Value,
    saved_mean: Value,
    saved_inverse: Value,
    mean: Value | None,
    variance: Value | None,
    d_y: Value,
    dx: Value | None,
    d_scale: Value | None,
    d_bias: Value | None,
    *,
    data_layout: str,
    is_test: bool,
    use_global_stats: bool,
    trainable_statistics: bool,
) -> Any:
    """One pass for the sums and one for the gradient of X."""
    if not _single(x, scale, d_y) or x.size == scale.size:
        return False
    sizes = _sizes(x, scale)
    tiles = [code.scratch(sizes[2]) for _ in range(4)]
    x, d_y = _channels_last(code, x, data_layout), _channels_last(code, d_y, data_layout)
    d_scale = d_scale or code.scratch(scale.size)
    d_bias = d_bias or code.scratch(scale.size)
    relu = (1, _channels_last(code, code.clipped, data_layout)) if code.clipped else (0, d_y)
    code.emit(_sums, *sizes, x, d_y, saved_mean, saved_inverse, d_scale, d_bias, *tiles[:3], *relu)
    if dx is not None:
        dx.channels_last = dx.has_planes and data_layout != "NHWC"
        depends = not (use_global_stats or (is_test and not trainable_statistics))
        code.emit(
            _gradient, *sizes, x, d_y, scale, saved_mean, saved_inverse, d_scale, d_bias, dx,
            float(depends), *tiles, *relu,
        )  # fmt: skip
