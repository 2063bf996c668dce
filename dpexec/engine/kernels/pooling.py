"""Pooling of channels-last images, a whole pixel at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpexec.engine.kernels.lowering import Code, Constant, Value, keywords, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.ops._pooling import Axis, Pooling
from dpexec.engine.ops._windows import channels_of, has_channels_last, size_of

_ZERO = np.float32(0)
_PARTS = "images:x*height*width*channels out*rows*columns*channels"

# First arguments of all kernels: images, channels, height and width of x, height and width of the
# result, a table for each axis with begin and end of every window. Docstrings have the others.


@kernel(parts=_PARTS)
def _largest(
    images: Count, channels: Count, height: Count, width: Count, rows: Count, columns: Count,
    down: Integers, along: Integers, x: Floats, out: Floats,
) -> int:  # fmt: skip
    """The largest element of every window. Further arguments: x, out."""
    place = 0
    for image in range(images):
        for row in range(rows):
            for column in range(columns):
                left, right = along[2 * column], along[2 * column + 1]
                start = ((image * height + down[2 * row]) * width + left) * channels
                for c in range(channels):
                    out[place + c] = x[start + c]
                for i in range(down[2 * row], down[2 * row + 1]):
                    start = ((image * height + i) * width + left) * channels
                    for _ in range(left, right):
                        for c in range(channels):
                            out[place + c] = max(out[place + c], x[start + c])
                        start += channels
                place += channels
    return 0


@kernel
def _largest_gradient(
    images: Count, channels: Count, height: Count, width: Count, rows: Count, columns: Count,
    down: Integers, along: Integers, x: Floats, out: Floats, d_out: Floats, dx: Floats,
    rest: Floats,
) -> int:  # fmt: skip
    """The gradient, which goes to the first largest element of every window.

    Further arguments: x, out, d_out, dx, memory for a pixel.
    """
    for i in range(images * height * width * channels):
        dx[i] = _ZERO
    place = 0
    for image in range(images):
        for row in range(rows):
            for column in range(columns):
                left, right = along[2 * column], along[2 * column + 1]
                for c in range(channels):
                    rest[c] = d_out[place + c]
                for i in range(down[2 * row], down[2 * row + 1]):
                    start = ((image * height + i) * width + left) * channels
                    for _ in range(left, right):
                        for c in range(channels):
                            hit = x[start + c] == out[place + c]
                            dx[start + c] += rest[c] if hit else _ZERO
                            rest[c] = _ZERO if hit else rest[c]
                        start += channels
                place += channels
    return 0


@kernel(parts=_PARTS)
def _largest_of_four(
    images: Count, channels: Count, height: Count, width: Count, rows: Count, columns: Count,
    down: Integers, along: Integers, x: Floats, out: Floats,
) -> int:  # fmt: skip
    """As ``_largest``, for windows of two by two pixels."""
    place = 0
    for image in range(images):
        for row in range(rows):
            for column in range(columns):
                a = ((image * height + down[2 * row]) * width + along[2 * column]) * channels
                b = a + width * channels
                for c in range(channels):
                    upper = max(x[a + c], x[a + channels + c])
                    lower = max(x[b + c], x[b + channels + c])
                    out[place + c] = max(upper, lower)
                place += channels
    return 0


@kernel
def _largest_of_four_gradient(
    images: Count, channels: Count, height: Count, width: Count, rows: Count, columns: Count,
    down: Integers, along: Integers, x: Floats, out: Floats, d_out: Floats, dx: Floats,
) -> int:  # fmt: skip
    """As ``_largest_gradient``, for windows of two by two pixels that do not overlap.

    All elements are read before the first is written: otherwise the loop is not vectorized.
    """
    if height != 2 * rows or width != 2 * columns:
        for i in range(images * height * width * channels):
            dx[i] = _ZERO
    place = 0
    for image in range(images):
        for row in range(rows):
            for column in range(columns):
                a = ((image * height + down[2 * row]) * width + along[2 * column]) * channels
                b = a + width * channels
                for c in range(channels):
                    top, share = out[place + c], d_out[place + c]
                    first, second = x[a + c], x[a + channels + c]
                    third, fourth = x[b + c], x[b + channels + c]
                    dx[a + c] = share if first == top else _ZERO
                    share = _ZERO if first == top else share
                    dx[a + channels + c] = share if second == top else _ZERO
                    share = _ZERO if second == top else share
                    dx[b + c] = share if third == top else _ZERO
                    share = _ZERO if third == top else share
                    dx[b + channels + c] = share if fourth == top else _ZERO
                place += channels
    return 0


@kernel(parts=_PARTS)
def _mean(
    images: Count, channels: Count, height: Count, width: Count, rows: Count, columns: Count,
    down: Integers, along: Integers, x: Floats, out: Floats, shares: Floats,
) -> int:  # fmt: skip
    """The mean of every window. Further arguments: x, out, 1 / (elements of each window)."""
    place = 0
    for image in range(images):
        for row in range(rows):
            for column in range(columns):
                left, right = along[2 * column], along[2 * column + 1]
                for c in range(channels):
                    out[place + c] = _ZERO
                for i in range(down[2 * row], down[2 * row + 1]):
                    start = ((image * height + i) * width + left) * channels
                    for _ in range(left, right):
                        for c in range(channels):
                            out[place + c] += x[start + c]
                        start += channels
                share = shares[row * columns + column]
                for c in range(channels):
                    out[place + c] *= share
                place += channels
    return 0


@kernel
def _mean_gradient(
    images: Count, channels: Count, height: Count, width: Count, rows: Count, columns: Count,
    down: Integers, along: Integers, dx: Floats, d_out: Floats, shares: Floats,
) -> int:  # fmt: skip
    """The gradient, shared by all elements. Further arguments: dx, d_out, 1 / (elements)."""
    for i in range(images * height * width * channels):
        dx[i] = _ZERO
    place = 0
    for image in range(images):
        for row in range(rows):
            for column in range(columns):
                left, right = along[2 * column], along[2 * column + 1]
                share = shares[row * columns + column]
                for i in range(down[2 * row], down[2 * row + 1]):
                    start = ((image * height + i) * width + left) * channels
                    for _ in range(left, right):
                        for c in range(channels):
                            dx[start + c] += d_out[place + c] * share
                        start += channels
                place += channels
    return 0


def _bounds(axis: Axis) -> Constant:
    return Constant(np.array([axis.bounds(k) for k in range(axis.output)], np.int64))


def _of_four(pooling: Pooling) -> bool:
    """Whether all windows have two by two pixels."""
    bounds = [axis.bounds(k) for axis in pooling.axes for k in range(axis.output)]
    return all(end - begin == 2 for begin, end in bounds)


def _shares(pooling: Pooling) -> Constant:
    lengths = []
    for axis in pooling.axes:
        bounds = [axis.bounds(k) for k in range(axis.output)]
        lengths.append([b - a if pooling.exclusive else axis.kernel for a, b in bounds])
    shares = [1 / (rows * columns) for rows in lengths[0] for columns in lengths[1]]
    return Constant(np.array(shares, np.float32))


def _sizes(x: Value, pooling: Pooling, data_format: str) -> list[Any]:
    down, along = pooling.axes
    return [
        x.shape[0], channels_of(x.shape, data_format), down.size, along.size,
        *pooling.output, _bounds(down), _bounds(along),
    ]  # fmt: skip


def _pooling(x: Value, data_format: str, windows: Mapping[str, Any]) -> Pooling | None:
    """The windows, if the kernels support them."""
    if x.dtype != "float32" or not x.size or len(x.shape) != 4:
        return None
    found = Pooling.of(size_of(x.shape, data_format), **windows)
    empty = any(a >= b for axis in found.axes for a, b in map(axis.bounds, range(axis.output)))
    return None if empty or not (found.exclusive or found.axes[0].kernel) else found


@lowering("pool2d", layout="own", attrs=keywords(Pooling.of))
def pool2d(
    code: Code,
    x: Value,
    out: Value,
    *,
    pooling_type: str,
    data_format: str,
    **windows: Any,
) -> Any:
    """One look at every element of every window."""
    pooling = _pooling(x, data_format, windows)
    if pooling is None:
        return False
    last = not has_channels_last(data_format)
    x, out.channels_last = code.laid(x, last), last and out.has_planes
    sizes = _sizes(x, pooling, data_format)
    if pooling_type == "max":
        code.emit(_largest_of_four if _of_four(pooling) else _largest, *sizes, x, out)
    else:
        code.emit(_mean, *sizes, x, out, _shares(pooling))


@lowering("pool2d_grad", layout="own", attrs=keywords(Pooling.of))
def pool2d_grad(
    code: Code,
    x: Value,
    out: Value,
    d_out: Value,
    dx: Value,
    *,
    pooling_type: str,
    data_format: str,
    **windows: Any,
) -> Any:
    """One look at every element of every window, after zeros."""
    pooling = _pooling(x, data_format, windows)
    if pooling is None:
        return False
    last = not has_channels_last(data_format)
    d_out, dx.channels_last = code.laid(d_out, last), last and dx.has_planes
    sizes = _sizes(x, pooling, data_format)
    if pooling_type == "max":
        x, out = code.laid(x, last), code.laid(out, last)
        apart = all(axis.stride >= axis.kernel for axis in pooling.axes)
        if _of_four(pooling) and apart:
            code.emit(_largest_of_four_gradient, *sizes, x, out, d_out, dx)
        else:
            code.emit(_largest_gradient, *sizes, x, out, d_out, dx, code.scratch(sizes[1]))
    else:
        code.emit(_mean_gradient, *sizes, dx, d_out, _shares(pooling))
