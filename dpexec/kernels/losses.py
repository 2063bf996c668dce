"""Softmax, cross entropy and means."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from dpexec.kernels.lowering import Code, Value, lowering
from dpexec.kernels.machine import count, floats, integers, kernel, number
from dpexec.kernels.math import exp, log

_ZERO, _ONE = np.float32(0), np.float32(1)
_SMALLEST_LOGIT, _HUGE = np.float32(-64), np.float32(1e20)

# Sums and largest elements in as many lanes as the processor has: their order depends on it, but
# not on anything else.
lanes = numba.njit(fastmath={"reassoc", "nsz", "nnan"}, cache=True, error_model="numpy")


@lanes
def _largest(x: Any, start: int, n: int) -> Any:
    found = x[start]
    for j in range(1, n):
        found = max(found, x[start + j])
    return found


@lanes
def _sum(x: Any, start: int, n: int) -> Any:
    total = _ZERO
    for j in range(n):
        total += x[start + j]
    return total


@lanes
def _dot(x: Any, y: Any, start: int, n: int) -> Any:
    total = _ZERO
    for j in range(n):
        total += x[start + j] * y[start + j]
    return total


@kernel
def _softmax(p: int) -> int:
    rows, n, x, out = count(p, 0), count(p, 1), floats(p, 2), floats(p, 3)
    for i in range(rows):
        start = i * n
        top = _largest(x, start, n)
        for j in range(n):
            out[start + j] = exp(max(x[start + j] - top, _SMALLEST_LOGIT))
        total = _sum(out, start, n)
        for j in range(n):
            out[start + j] /= total
    return 0


@kernel
def _softmax_grad(p: int) -> int:
    rows, n, y, dy, dx = count(p, 0), count(p, 1), floats(p, 2), floats(p, 3), floats(p, 4)
    for i in range(rows):
        start = i * n
        total = _dot(y, dy, start, n)
        for j in range(n):
            dx[start + j] = y[start + j] * (dy[start + j] - total)
    return 0


@kernel
def _cross_entropy(p: int) -> int:
    rows, n, x, label = count(p, 0), count(p, 1), floats(p, 2), integers(p, 3)
    loss, match, ignored = floats(p, 4), floats(p, 5), count(p, 6)
    for i in range(rows):
        chosen = label[i]
        if chosen == ignored:
            match[i], loss[i] = _ONE, _ZERO
        elif chosen < 0 or chosen >= n:
            return 1
        else:
            value = x[i * n + chosen]
            match[i], loss[i] = value, -max(log(value), -_HUGE)
    return 0


@kernel
def _cross_entropy_grad(p: int) -> int:
    rows, n, match, label = count(p, 0), count(p, 1), floats(p, 2), integers(p, 3)
    dy, dx, ignored = floats(p, 4), floats(p, 5), count(p, 6)
    for i in range(rows * n):
        dx[i] = _ZERO
    for i in range(rows):
        chosen = label[i]
        if chosen != ignored:
            if chosen < 0 or chosen >= n:
                return 1
            dx[i * n + chosen] = -dy[i] / match[i]
    return 0


@kernel
def _mean(p: int) -> int:
    n, x, out, factor = count(p, 0), floats(p, 1), floats(p, 2), number(p, 3)
    out[0] = _sum(x, 0, n) * factor
    return 0


@kernel
def _mean_grad(p: int) -> int:
    n, dy, dx = count(p, 0), floats(p, 1), floats(p, 2)
    share = dy[0] / np.float32(n)
    for i in range(n):
        dx[i] = share
    return 0


def _single(*values: Value) -> bool:
    return all(value.dtype == "float32" for value in values)


@lowering("softmax")
def softmax(code: Code, x: Value, out: Value, *, axis: int) -> Any:
    """Three passes over rows that stay in the cache."""
    if not _single(x) or axis not in (-1, len(x.shape) - 1):
        return False
    n = x.shape[-1]
    code.emit(_softmax, x.size // n, n, x, out)


@lowering("softmax_grad")
def softmax_grad(code: Code, out: Value, d_out: Value, dx: Value, *, axis: int) -> Any:
    """Two passes over rows that stay in the cache."""
    if not _single(out) or axis not in (-1, len(out.shape) - 1):
        return False
    n = out.shape[-1]
    code.emit(_softmax_grad, out.size // n, n, out, d_out, dx)


@lowering("cross_entropy2")
def cross_entropy2(
    code: Code,
    x: Value,
    label: Value,
    y: Value,
    x_shape: Value | None,
    match: Value,
    *,
    ignore_index: int,
) -> Any:
    """One look at every row."""
    if not _single(x) or label.dtype != "int64":
        return False
    n = x.shape[-1]
    code.emit(_cross_entropy, x.size // n, n, x, label, y, match, ignore_index)


@lowering("cross_entropy_grad2")
def cross_entropy_grad2(
    code: Code,
    x_shape: Value,
    match: Value,
    label: Value,
    d_y: Value,
    dx: Value,
    *,
    ignore_index: int,
) -> Any:
    """Zeros but for one element in every row."""
    if not _single(match) or label.dtype != "int64":
        return False
    n = dx.shape[-1]
    code.emit(_cross_entropy_grad, dx.size // n, n, match, label, d_y, dx, ignore_index)


@lowering("mean")
def mean(code: Code, x: Value, out: Value) -> Any:
    """One pass."""
    if not _single(x):
        return False
    code.emit(_mean, x.size, x, out, 1.0 / x.size)


@lowering("mean_grad")
def mean_grad(code: Code, x: Value, d_out: Value, dx: Value) -> Any:
    """The same share for every element."""
    if not _single(x):
        return False
    code.emit(_mean_grad, x.size, d_out, dx)
