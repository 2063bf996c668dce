"""Cross entropy, means and accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.generate import Pointwise, single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, Number, Words, kernel
from dpexec.engine.kernels.math import log
from dpexec.engine.kernels.softmax import add_up, dot

_ZERO = np.float32(0)
_FEW = 64  # the most elements of top_k that are found by insertion
_HUGE = np.float32(1e20)


@kernel
def _cross_entropy(
    rows: Count, n: Count, x: Floats, label: Integers, loss: Floats, match: Floats, ignored: Count,
) -> int:  # fmt: skip
    for i in range(rows):
        chosen = label[i]
        if chosen == ignored:
            match[i], loss[i] = _ZERO, _ZERO
        elif chosen < 0 or chosen >= n:
            return 1
        else:
            value = x[i * n + chosen]
            match[i], loss[i] = value, -max(log(value), -_HUGE)
    return 0


@kernel
def _cross_entropy_grad(
    rows: Count, n: Count, match: Floats, label: Integers, dy: Floats, dx: Floats, ignored: Count,
) -> int:  # fmt: skip
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
def _mean(n: Count, x: Floats, out: Floats, factor: Number) -> int:
    out[0] = add_up(x, 0, n) * factor
    return 0


@kernel
def _mean_grad(n: Count, dy: Floats, dx: Floats) -> int:
    share = dy[0] / np.float32(n)
    for i in range(n):
        dx[i] = share
    return 0


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
    if not single(x) or label.dtype != "int64":
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
    if not single(match) or label.dtype != "int64":
        return False
    n = dx.shape[-1]
    code.emit(_cross_entropy_grad, dx.size // n, n, match, label, d_y, dx, ignore_index)


@lowering("mean")
def mean(code: Code, x: Value, out: Value) -> Any:
    """One pass."""
    if not single(x):
        return False
    code.emit(_mean, x.size, x, out, 1.0 / x.size)


@lowering("mean_grad")
def mean_grad(code: Code, x: Value, d_out: Value, dx: Value) -> Any:
    """The same share for every element."""
    if not single(x):
        return False
    code.emit(_mean_grad, x.size, d_out, dx)


# ---- one sigmoid for every element


_YES_OR_NO = Pointwise(
    "sigmoid_cross_entropy", "x label",
    "max(x, zero) - x * label + log1p(exp(-abs(x))) if label != ignored else zero", "ignored",
)  # fmt: skip
_YES_OR_NO_GRAD = Pointwise(
    "sigmoid_cross_entropy_grad", "x label dy",
    "((one - label) * sigmoid(x) - label * against(x)) * dy if label != ignored else zero",
    "ignored",
)  # fmt: skip


@lowering("sigmoid_cross_entropy_with_logits", layout="pointwise")
def sigmoid_cross_entropy_with_logits(
    code: Code, x: Value, label: Value, out: Value, *, ignore_index: int, normalize: bool
) -> Any:
    """One pass."""
    if normalize or not single(x, label):
        return False
    _YES_OR_NO.emit(code, out, x, label, factors=[ignore_index], reuse=True)


@lowering("sigmoid_cross_entropy_with_logits_grad", layout="pointwise")
def sigmoid_cross_entropy_with_logits_grad(
    code: Code, x: Value, label: Value, d_out: Value, dx: Value,
    *, ignore_index: int, normalize: bool,
) -> Any:  # fmt: skip
    """One pass."""
    if normalize or not single(x, label, d_out):
        return False
    _YES_OR_NO_GRAD.emit(code, dx, x, label, d_out, factors=[ignore_index], reuse=True)


# ---- how good predictions are


@kernel
def _top_k(rows: Count, n: Count, k: Count, x: Floats, best: Floats, indices: Integers) -> int:
    """The ``k`` largest elements of each row by insertion; among equal ones, the first."""
    for i in range(rows):
        found = 0
        for j in range(n):
            value = x[i * n + j]
            if found == k and not value > best[i * k + k - 1]:
                continue
            place = found if found < k else k - 1
            while place > 0 and value > best[i * k + place - 1]:
                best[i * k + place] = best[i * k + place - 1]
                indices[i * k + place] = indices[i * k + place - 1]
                place -= 1
            best[i * k + place] = value
            indices[i * k + place] = j
            found = min(found + 1, k)
    return 0


@lowering("top_k")
def top_k(
    code: Code, x: Value, wanted: Value | None, out: Value | None, indices: Value, *, k: int
) -> Any:
    """One look at every element."""
    if wanted is not None or not single(x) or k > _FEW:
        return False
    n = x.shape[-1]
    rows = x.size // n
    code.emit(_top_k, rows, n, k, x, out or code.scratch(rows, k), indices)


@kernel
def _accuracy(
    rows: Count, k: Count, indices: Integers, label: Integers, share: Floats, correct: Words,
    total: Words,
) -> int:  # fmt: skip
    hits = 0
    for i in range(rows):
        hit = False
        for j in range(k):
            hit |= indices[i * k + j] == label[i]
        hits += hit
    share[0] = np.float32(hits / max(rows, 1))
    correct[0], total[0] = hits, rows
    return 0


@lowering("accuracy")
def accuracy(
    code: Code, out: Value, indices: Value, label: Value, share: Value, correct: Value | None,
    total: Value | None,
) -> Any:  # fmt: skip
    """One look at every prediction."""
    if not single(out) or any(value.dtype != "int64" for value in (indices, label)):
        return False
    counts = [value or code.scratch(1, dtype=np.int32) for value in (correct, total)]
    code.emit(_accuracy, *indices.shape, indices, label, share, *counts)


# ---- ranking

_MARGIN = Pointwise("margin", "a b label", "max(margin - label * (a - b), zero)", "margin")
_POSITIVE = Pointwise("positive", "x", "one if x > zero else zero")
_MARGIN_GRAD = Pointwise("margin_grad", "label active d", "d * label * active * factor", "factor")


@lowering("margin_rank_loss")
def margin_rank_loss(
    code: Code, x1: Value, x2: Value, label: Value, active: Value | None, out: Value,
    *, margin: float,
) -> Any:  # fmt: skip
    """One pass for the loss, one for whether it is positive."""
    if not single(x1, x2, label):
        return False
    _MARGIN.emit(code, out, x1, x2, label, factors=[margin])
    if active is not None:
        _POSITIVE.emit(code, active, out)


@lowering("margin_rank_loss_grad")
def margin_rank_loss_grad(
    code: Code, label: Value, active: Value, d_out: Value, dx1: Value | None, dx2: Value | None
) -> Any:
    """A pass for each gradient."""
    if not single(label, active, d_out):
        return False
    for factor, dx in ((-1.0, dx1), (1.0, dx2)):
        if dx is not None:
            _MARGIN_GRAD.emit(code, dx, label, active, d_out, factors=[factor])


# ---- norms


@kernel
def _squared_l2_norm(n: Count, x: Floats, out: Floats) -> int:
    out[0] = dot(x, x, 0, n)
    return 0


@lowering("squared_l2_norm")
def squared_l2_norm(code: Code, x: Value, out: Value) -> Any:
    """One pass."""
    if not single(x):
        return False
    code.emit(_squared_l2_norm, x.size, x, out)
