"""Softmax, and its cross entropy, row by row, so that each row stays in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.elementwise import DIVIDE, MULTIPLY, SUBTRACT, TOTAL
from dpexec.engine.kernels.formulas import Sheet
from dpexec.engine.kernels.generate import Pointwise, Recorder, single
from dpexec.engine.kernels.linear import MAXIMA
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.math import exp_bounded, lanes, largest, log, log1p

__all__ = ["add_up", "dot", "hard"]

_ZERO, _ONE = np.float32(0), np.float32(1)
_SMALLEST_LOGIT, _HUGE = np.float32(-64), np.float32(1e20)


@lanes
def add_up(x: Any, start: int, n: int) -> Any:
    """The sum of ``n`` numbers."""
    total = _ZERO
    for j in range(n):
        total += x[start + j]
    return total


@lanes
def dot(x: Any, y: Any, start: int, n: int) -> Any:
    """The sum of ``n`` products."""
    total = _ZERO
    for j in range(n):
        total += x[start + j] * y[start + j]
    return total


@inline
def _powers_of_row(x: Any, out: Any, start: int, n: int, onto: int) -> None:
    """The exponentials of a row's softmax; ``onto`` tells the compiler that ``out`` is ``x``."""
    top = largest(x, start, n)
    if onto:
        for j in range(n):
            out[start + j] = exp_bounded(max(out[start + j] - top, _SMALLEST_LOGIT))
    else:
        for j in range(n):
            out[start + j] = exp_bounded(max(x[start + j] - top, _SMALLEST_LOGIT))


@inline
def _softmax_row(x: Any, out: Any, start: int, n: int, onto: int) -> None:
    """The softmax of a row."""
    _powers_of_row(x, out, start, n, onto)
    total = add_up(out, start, n)
    for j in range(n):
        out[start + j] /= total


@kernel(parts="rows:out*n x*n")
def _softmax(rows: Count, n: Count, x: Floats, out: Floats, onto: Count) -> int:
    for i in range(rows):
        _softmax_row(x, out, i * n, n, onto)
    return 0


@kernel(parts="rows:dx*n y*n dy*n")
def _softmax_grad(rows: Count, n: Count, y: Floats, dy: Floats, dx: Floats, onto: Count) -> int:
    for i in range(rows):
        start = i * n
        total = dot(y, dy, start, n)
        if onto:
            for j in range(n):
                dx[start + j] = y[start + j] * (dx[start + j] - total)
        else:
            for j in range(n):
                dx[start + j] = y[start + j] * (dy[start + j] - total)
    return 0


@kernel
def _softmax_with_cross_entropy(
    rows: Count, n: Count, x: Floats, label: Integers, out: Floats, loss: Floats, ignored: Count,
    onto: Count,
) -> int:  # fmt: skip
    for i in range(rows):
        chosen = label[i]
        if chosen != ignored and (chosen < 0 or chosen >= n):
            return 1
    for i in range(rows):
        chosen, start = label[i], i * n
        if chosen == ignored:
            _softmax_row(x, out, start, n, onto)
            loss[i] = _ZERO
            continue
        _powers_of_row(x, out, start, n, onto)
        power, out[start + chosen] = out[start + chosen], _ZERO
        others = add_up(out, start, n)
        out[start + chosen] = power
        total = others + power
        for j in range(n):
            out[start + j] /= total
        if power > others:  # -log(p) would be inaccurate where p is nearly 1
            loss[i] = log1p(others / power)
        else:
            loss[i] = -max(log(out[start + chosen]), -_HUGE)
    return 0


@kernel
def _softmax_with_cross_entropy_grad(
    rows: Count, n: Count, y: Floats, label: Integers, d_loss: Floats, dx: Floats, ignored: Count,
    onto: Count,
) -> int:  # fmt: skip
    for i in range(rows):
        chosen, start = label[i], i * n
        if chosen != ignored and (chosen < 0 or chosen >= n):
            return 1
        factor = _ZERO if chosen == ignored else d_loss[i]
        if onto:
            for j in range(n):
                dx[start + j] *= factor
        else:
            for j in range(n):
                dx[start + j] = y[start + j] * factor
        if chosen != ignored:
            dx[start + chosen] -= factor
    return 0


# ---- softmax as expressions, for groups of operators: the same numbers

_LONG_ROW = 128
"""Elements of a row from which on a group takes softmax as expressions: for rows of 64, a separate
softmax kernel with flat loops around it takes 0.9 of the time."""
_ABOVE = Pointwise("exp_of_difference", "x y", "exp_bounded(max(x - y, F(-64)))")


def _rows(code: Code, x: Value) -> tuple[Value, list[bool], tuple[int, ...]]:
    """Memory for a number per row, which dimensions are kept, and the shape of these numbers."""
    kept = [True] * (len(x.shape) - 1) + [False]
    shape = (*x.shape[:-1], 1)
    return code.scratch(*shape), kept, shape


def _softmax_by_expressions(code: Recorder, x: Value, out: Value) -> None:
    top, kept, row = _rows(code, x)
    MAXIMA.emit(code, x, top, x.shape, kept)
    above, total = code.scratch(*x.shape), _rows(code, x)[0]
    _ABOVE.broadcast(code, above, x, top, (x.shape, row), x.shape)
    TOTAL.emit(code, above, total, x.shape, kept)
    DIVIDE.broadcast(code, out, above, total, (x.shape, row), x.shape)


def _softmax_grad_by_expressions(code: Recorder, y: Value, dy: Value, dx: Value) -> None:
    product = code.scratch(*y.shape)
    MULTIPLY.emit(code, product, y, dy)
    total, kept, row = _rows(code, y)
    TOTAL.emit(code, product, total, y.shape, kept)
    difference = code.scratch(*y.shape)
    SUBTRACT.broadcast(code, difference, dy, total, (y.shape, row), y.shape)
    MULTIPLY.emit(code, dx, y, difference)


@lowering("softmax")
def softmax(code: Code, x: Value, out: Value, *, axis: int) -> Any:
    """Three passes over rows that stay in the cache."""
    if not single(x) or axis not in (-1, len(x.shape) - 1):
        return False
    n = x.shape[-1]
    if isinstance(code, Recorder) and n >= _LONG_ROW:
        _softmax_by_expressions(code, x, out)
        return None
    onto = code.reuse(out, x)
    code.emit(_softmax, x.size // n, n, x, out, onto)


@lowering("softmax_grad")
def softmax_grad(code: Code, out: Value, d_out: Value, dx: Value, *, axis: int) -> Any:
    """Two passes over rows that stay in the cache."""
    if not single(out) or axis not in (-1, len(out.shape) - 1):
        return False
    n = out.shape[-1]
    if isinstance(code, Recorder) and n >= _LONG_ROW:
        _softmax_grad_by_expressions(code, out, d_out, dx)
        return None
    onto = code.reuse(dx, d_out)
    code.emit(_softmax_grad, out.size // n, n, out, d_out, dx, onto)


def hard(values: Value, label: Value, soft: bool, axis: int) -> bool:
    """Whether labels are class numbers, and classes lie along the last axis."""
    last = axis in (-1, len(values.shape) - 1)
    return single(values) and last and not soft and label.dtype == "int64"


@lowering("softmax_with_cross_entropy")
def softmax_with_cross_entropy(
    code: Code, logits: Value, label: Value, out: Value, loss: Value,
    *, soft_label: bool, ignore_index: int, axis: int,
) -> Any:  # fmt: skip
    """Softmax and loss of one row after another; may overwrite logits that are not read later."""
    if soft_label and single(logits, label) and axis in (-1, len(logits.shape) - 1):
        return _with_shares(code, logits, label, out, loss)
    if not hard(logits, label, soft_label, axis):
        return False
    n = logits.shape[-1]
    onto = code.reuse(out, logits)
    code.emit(
        _softmax_with_cross_entropy, logits.size // n, n, logits, label, out, loss, ignore_index,
        onto,
    )  # fmt: skip
    return None


def _with_shares(code: Code, logits: Value, label: Value, out: Value, loss: Value) -> bool:
    """Softmax and loss for soft labels."""
    n = logits.shape[-1]
    sheet = Sheet(code, (logits.size // n, n))
    _softmax_by_expressions(sheet.group, logits, out)
    terms = sheet.each("-max(log(y), -most) * t", factors={"most": float(_HUGE)}, y=out, t=label)
    sheet.total(terms, [1], loss)
    return sheet.done(out, loss)


@lowering("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(
    code: Code, softmax: Value, label: Value, d_loss: Value, dx: Value,
    *, soft_label: bool, ignore_index: int, axis: int,
) -> Any:  # fmt: skip
    """One pass; may overwrite a softmax that is not read later."""
    if soft_label and single(softmax, label, d_loss) and axis in (-1, len(softmax.shape) - 1):
        n = softmax.shape[-1]
        sheet = Sheet(code, (softmax.size // n, n))
        sheet.each("(y - t) * d", dx, y=softmax, t=label, d=(d_loss, sheet.left([1])))
        return sheet.done(dx)
    if not hard(softmax, label, soft_label, axis):
        return False
    n = softmax.shape[-1]
    onto = code.reuse(dx, softmax)
    code.emit(
        _softmax_with_cross_entropy_grad, softmax.size // n, n, softmax, label, d_loss, dx,
        ignore_index, onto,
    )  # fmt: skip
    return None
