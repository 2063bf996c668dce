"""One-hot vectors, and cross entropy of probabilities with hard or soft labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.formulas import Sheet
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.math import log

_ZERO, _ONE, _HUGE = np.float32(0), np.float32(1), np.float32(1e20)


@kernel
def _one_hot(rows: Count, depth: Count, x: Integers, out: Floats, beyond: Count) -> int:
    for i in range(rows * depth):
        out[i] = _ZERO
    for i in range(rows):
        if 0 <= x[i] < depth:
            out[i * depth + x[i]] = _ONE
        elif not beyond:
            return 1
    return 0


@lowering("one_hot", "one_hot_v2")
def one_hot(
    code: Code, x: Value, tensor: Value | None, out: Value, *, depth: int, allow_out_of_range: bool
) -> Any:
    """Zeros, and a one in every row."""
    if tensor is not None or not single(out) or x.dtype != "int64":
        return False
    code.emit(_one_hot, x.size, depth, x, out, bool(allow_out_of_range))


@kernel
def _loss(rows: Count, n: Count, x: Floats, label: Integers, loss: Floats, ignored: Count) -> int:
    for i in range(rows):
        chosen = label[i]
        if chosen == ignored:
            loss[i] = _ZERO
        elif chosen < 0 or chosen >= n:
            return 1
        else:
            loss[i] = -max(log(x[i * n + chosen]), -_HUGE)
    return 0


@kernel
def _loss_grad(
    rows: Count, n: Count, x: Floats, label: Integers, d_loss: Floats, dx: Floats, ignored: Count,
) -> int:  # fmt: skip
    for i in range(rows * n):
        dx[i] = _ZERO
    for i in range(rows):
        chosen = label[i]
        if chosen != ignored:
            if chosen < 0 or chosen >= n:
                return 1
            dx[i * n + chosen] = -d_loss[i] / x[i * n + chosen]
    return 0


@lowering("cross_entropy")
def cross_entropy(
    code: Code, x: Value, label: Value, y: Value, *, soft_label: bool, ignore_index: int
) -> Any:
    """One look at every row, or a sum over it."""
    n = x.shape[-1]
    if soft_label and single(x, label):
        return _soft_loss(Sheet(code, (x.size // n, n)), x, label, y)
    if soft_label or not single(x) or label.dtype != "int64":
        return False
    code.emit(_loss, x.size // n, n, x, label, y, ignore_index)
    return None


def _soft_loss(sheet: Sheet, x: Value, label: Value, y: Value) -> bool:
    limit = {"most": float(_HUGE)}
    terms = sheet.each("-max(log(x), -most) * t", factors=limit, x=x, t=label)
    sheet.total(terms, [1], y)
    return sheet.done(y)


@lowering("cross_entropy_grad")
def cross_entropy_grad(
    code: Code, x: Value, label: Value, d_y: Value, dx: Value, *, soft_label: bool,
    ignore_index: int,
) -> Any:  # fmt: skip
    """Zeros but for one element in every row, or one pass."""
    n = x.shape[-1]
    if soft_label and single(x, label, d_y):
        sheet = Sheet(code, (x.size // n, n))
        sheet.each("-d * t / x", dx, x=x, t=label, d=(d_y, sheet.left([1])))
        return sheet.done(dx)
    if soft_label or not single(x, d_y) or label.dtype != "int64":
        return False
    code.emit(_loss_grad, x.size // n, n, x, label, d_y, dx, ignore_index)
    return None
