"""Operators that work element by element, and the sums that their gradients are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.kernels.lowering import Code, Value, lowering
from dpexec.kernels.machine import Kernel, count, floats, kernel

_ZERO = np.float32(0)


@kernel
def _relu(p: int) -> int:
    n, x, out = count(p, 0), floats(p, 1), floats(p, 2)
    for i in range(n):
        out[i] = max(x[i], _ZERO)
    return 0


@kernel
def _relu_grad(p: int) -> int:
    n, y, dy, dx = count(p, 0), floats(p, 1), floats(p, 2), floats(p, 3)
    for i in range(n):
        dx[i] = dy[i] if y[i] > _ZERO else _ZERO
    return 0


def _single(*values: Value | None) -> bool:
    return all(value is None or value.dtype == "float32" for value in values)


@lowering("relu", layout="pointwise")
def relu(code: Code, x: Value, out: Value) -> Any:
    """One pass."""
    if not _single(x):
        return False
    code.emit(_relu, x.size, x, out)


@lowering("relu_grad", layout="pointwise")
def relu_grad(code: Code, out: Value, d_out: Value, dx: Value) -> Any:
    """One pass."""
    if not _single(out):
        return False
    code.emit(_relu_grad, out.size, out, d_out, dx)


# ---- two operands; y repeated before and behind


@kernel
def _add(p: int) -> int:
    before, n, behind = count(p, 0), count(p, 1), count(p, 2)
    x, y, out = floats(p, 3), floats(p, 4), floats(p, 5)
    for i in range(before):
        for j in range(n):
            start = (i * n + j) * behind
            term = y[j]
            for k in range(behind):
                out[start + k] = x[start + k] + term
    return 0


@kernel
def _add_rows(p: int) -> int:
    rows, n = count(p, 0), count(p, 1)
    x, y, out = floats(p, 3), floats(p, 4), floats(p, 5)
    for i in range(rows):
        for j in range(n):
            out[i * n + j] = x[i * n + j] + y[j]
    return 0


@kernel
def _sum_repeated(p: int) -> int:
    before, n, behind, x, out = count(p, 0), count(p, 1), count(p, 2), floats(p, 3), floats(p, 4)
    for j in range(n):
        out[j] = _ZERO
    for i in range(before):
        for j in range(n):
            start = (i * n + j) * behind
            total = _ZERO
            for k in range(behind):
                total += x[start + k]
            out[j] += total
    return 0


@kernel
def _sum_rows(p: int) -> int:
    rows, n, x, out = count(p, 0), count(p, 1), floats(p, 3), floats(p, 4)
    for j in range(n):
        out[j] = _ZERO
    for i in range(rows):
        for j in range(n):
            out[j] += x[i * n + j]
    return 0


@kernel
def _copy(p: int) -> int:
    n, x, out = count(p, 0), floats(p, 1), floats(p, 2)
    for i in range(n):
        out[i] = x[i]
    return 0


def repeated(x: Value, y: Value, axis: int) -> tuple[int, int, int] | None:
    """How often ``y`` is repeated before, its size, and how often behind; None: another way."""
    shape, small = x.shape, y.shape
    if len(small) > len(shape):
        return None
    start = len(shape) - len(small) if axis == -1 or len(small) == len(shape) else axis
    while small and (small[-1] == 1 and (start + len(small) > len(shape) or len(small) > 1)):
        small = small[:-1]
    while len(small) > 1 and small[0] == 1:
        small, start = small[1:], start + 1
    end = start + len(small)
    if end > len(shape) or shape[start:end] != small:
        return (x.size, 1, 1) if y.size == 1 and x.size == 1 else None
    return math.prod(shape[:start]), math.prod(small), math.prod(shape[end:])


def _in_memory(
    x: Value, y: Value, axis: int, last: bool
) -> tuple[bool, tuple[int, int, int] | None]:
    """As :func:`repeated` says, for ``x`` with its channels last if wished and possible."""
    parts = repeated(x, y, axis)
    if parts is None or not last or x.shape == y.shape:
        return last, parts
    before, n, behind = parts
    if (before, n) != x.shape[:2]:
        return False, parts
    return True, (before * behind, n, 1)


@lowering("elementwise_add", layout="own")
def elementwise_add(code: Code, x: Value, y: Value, out: Value, *, axis: int) -> Any:
    """One pass."""
    last, parts = _in_memory(x, y, axis, x.channels_last or y.channels_last)
    if parts is None or not _single(x, y):
        return False
    x, y = code.laid(x, last), code.laid(y, last and x.shape == y.shape)
    out.channels_last = last and out.has_planes
    code.emit(_add_rows if parts[2] == 1 else _add, *parts, x, y, out)


@lowering("elementwise_add_grad", layout="own")
def elementwise_add_grad(
    code: Code,
    x: Value,
    y: Value,
    d_out: Value,
    dx: Value | None,
    dy: Value | None,
    *,
    axis: int,
) -> Any:
    """The gradient itself for X, its sum over what was repeated for Y."""
    last, parts = _in_memory(x, y, axis, d_out.channels_last)
    if parts is None or not _single(x, y):
        return False
    d_out = code.laid(d_out, last)
    if dx is not None and not code.alias(dx, d_out):
        code.emit(_copy, d_out.size, d_out, dx)
    if dy is not None and y.size == d_out.size:
        dy.channels_last = last and dy.has_planes
        if not code.alias(dy, d_out):
            code.emit(_copy, d_out.size, d_out, dy)
    elif dy is not None:
        summing: Kernel = _sum_rows if parts[2] == 1 else _sum_repeated
        code.emit(summing, *parts, d_out, dy)
