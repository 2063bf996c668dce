"""Sparse gradients: concatenation, merging of rows, and updates by optimizers.

Duplicate rows stand for the sum of their values. ``sgd`` applies them one after another, as Paddle
does. Other operators need the sum and merge them first: rows become sorted and unique, and values
are added in their original order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.elementwise import ADD
from dpexec.engine.kernels.embedding import fetch_ahead
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Sparse, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, Number, kernel
from dpexec.engine.kernels.optimizers import advance
from dpexec.engine.kernels.shapes import move

__all__ = ["append", "merged"]

_ZERO, _ONE = np.float32(0), np.float32(1)
_BITS = 11
_BITS_OF_FEW = 8
_FEW = 2048  # rows up to which sorting by small digits in more passes is faster


# ---- joined


@kernel
def append(
    before: Count, width: Count, rows: Integers, value: Floats, held: Integers, out_rows: Integers,
    out: Floats, total: Integers,
) -> int:  # fmt: skip
    """Append rows to a result.

    Arguments: 0 if the result is empty, elements of a row; row numbers, values and number of rows;
    the same of the result.
    """
    n = held[0]
    start = total[0] if before else 0
    for i in range(n):
        out_rows[start + i] = rows[i]
    for i in range(n * width):
        out[start * width + i] = value[i]
    total[0] = start + n
    return 0


@lowering("sum", sparse=True)
def sum(code: Code, xs: list[Value | Sparse], out: Value | Sparse) -> Any:
    """The rows of all inputs, one after another, merged if some come twice.

    If some inputs are dense, these are added up, and then the rows of the others.
    """
    if out.dtype != "float32":
        return False
    if not isinstance(out, Sparse):
        return _add_rows(code, xs, out)
    joined = Sparse.like(out.shape, out.dtype, out.room)
    for before, part in enumerate(xs):
        code.emit(append, before, out.width, *part.parts, *joined.parts)
    merged(code, joined, out, keeps=True)


@kernel
def add_rows(
    width: Count, rows: Integers, value: Floats, held: Integers, out: Floats
) -> int:  # fmt: skip
    """Add rows to a matrix.

    Arguments: elements of a row; row numbers, which differ, values and number of rows; the matrix.
    """
    for i in range(held[0]):
        start = rows[i] * width
        for j in range(width):
            out[start + j] += value[i * width + j]
    return 0


def _add_rows(code: Code, xs: list[Value | Sparse], out: Value) -> bool:
    dense = [x for x in xs if isinstance(x, Value)]
    if not single(*dense, out):
        return False
    if len(dense) > 1:
        ADD.emit(code, out, *dense[:2], reuse=len(dense) == 2)
    elif not code.reuse(out, dense[0]):
        move(code, dense[0], out, (out.size,), (0, [1]), (0, [1]))
    for part in dense[2:]:
        ADD.add_to(code, out, part)
    for x in xs:
        if isinstance(x, Sparse):
            rows = merged(code, x)
            code.emit(add_rows, rows.width, *rows.parts, out)
    return True


# ---- merged


@kernel
def _merge(
    height: Count, width: Count, rows: Integers, value: Floats, held: Integers, out_rows: Integers,
    out: Floats, total: Integers, order: Integers, other: Integers, starts: Integers,
) -> int:  # fmt: skip
    """Sort the rows digit by digit, which keeps equal ones in order, and add up equal ones."""
    n = held[0]
    for i in range(n):
        if rows[i] < 0 or rows[i] >= height:
            return 1
        order[i] = i
    shift, bits = 0, _BITS_OF_FEW if n < _FEW else _BITS
    digits = 1 << bits
    while height >> shift:
        for digit in range(digits):
            starts[digit] = 0
        for i in range(n):
            starts[(rows[i] >> shift) & (digits - 1)] += 1
        start = 0
        for digit in range(digits):
            start, starts[digit] = start + starts[digit], start
        for i in range(n):
            digit = (rows[order[i]] >> shift) & (digits - 1)
            other[starts[digit]] = order[i]
            starts[digit] += 1
        order, other = other, order
        shift += bits
    last = -1
    for i in range(n):
        source = order[i]
        if last < 0 or out_rows[last] != rows[source]:
            last += 1
            out_rows[last] = rows[source]
            for j in range(width):
                out[last * width + j] = value[source * width + j]
        else:
            for j in range(width):
                out[last * width + j] += value[source * width + j]
    total[0] = last + 1
    return 0


@kernel
def _keep_order(
    width: Count, rows: Integers, value: Floats, held: Integers, out_rows: Integers, out: Floats,
    total: Integers,
) -> int:  # fmt: skip
    """Bring merged rows back into their original order, if no two of them were equal.

    Arguments: elements of a row; row numbers, values and number of rows; the same of the merged
    ones.
    """
    n = held[0]
    if total[0] == n:
        for i in range(n):
            out_rows[i] = rows[i]
        for i in range(n * width):
            out[i] = value[i]
    return 0


def merged(code: Code, grad: Sparse, out: Sparse | None = None, keeps: bool = False) -> Sparse:
    """Sorted rows, each once.

    Args:
        code: takes the call.
        grad: rows of float32 numbers.
        out: takes the rows; None: scratch memory.
        keeps: whether rows keep their order if no two are equal.
    """
    shape = (grad.height, *grad.value.shape[1:])
    made = Sparse.like(shape, grad.dtype, grad.room) if out is None else out
    orders = [code.scratch(grad.room, dtype=np.int64) for _ in range(2)]
    starts = code.scratch(1 << _BITS, dtype=np.int64)
    code.emit(_merge, grad.height, grad.width, *grad.parts, *made.parts, *orders, starts)
    if keeps:
        code.emit(_keep_order, grad.width, *grad.parts, *made.parts)
    return made


@lowering("merge_selected_rows", sparse=True)
def merge_selected_rows(code: Code, x: Sparse, out: Sparse) -> Any:
    """One sort of the row numbers, and one or two passes over the rows."""
    if x.dtype != "float32":
        return False
    merged(code, x, out, keeps=True)


# ---- optimizers


@kernel(rows="param")
def _sgd_rows(
    height: Count, width: Count, param: Floats, rate: Floats, rows: Integers, value: Floats,
    held: Integers,
) -> int:  # fmt: skip
    n = held[0]
    factor = rate[0]
    for i in range(n):
        if rows[i] < 0 or rows[i] >= height:
            return 1
    for i in range(n):
        fetch_ahead(param, rows, i, n, width)
        start = rows[i] * width
        for j in range(width):
            param[start + j] -= factor * value[i * width + j]
    return 0


@kernel(rows="param moment")
def _adagrad_rows(
    width: Count, param: Floats, moment: Floats, rate: Floats, epsilon: Number, rows: Integers,
    value: Floats, held: Integers,
) -> int:  # fmt: skip
    n = held[0]
    factor = rate[0]
    for i in range(n):
        fetch_ahead(param, rows, i, n, width)
        fetch_ahead(moment, rows, i, n, width)
        start = rows[i] * width
        for j in range(width):
            grad = value[i * width + j]
            size = moment[start + j] + grad * grad
            moment[start + j] = size
            param[start + j] -= factor * grad / (np.sqrt(size) + epsilon)
    return 0


@inline
def _adam_step(param: Any, m: Any, v: Any, at: Any, grad: Any, b1: Any, b2: Any, rest: Any) -> Any:
    step, epsilon = rest
    mean = m[at] * b1 + grad * (_ONE - b1)
    square = v[at] * b2 + grad * (_ONE - b2) * grad
    m[at] = mean
    v[at] = square
    param[at] -= mean / (np.sqrt(square) + epsilon) * step


@kernel
def _adam_rows(
    height: Count, width: Count, param: Floats, m: Floats, v: Floats, rate: Floats, power1: Floats,
    power2: Floats, b1: Number, b2: Number, epsilon: Number, rows: Integers, value: Floats,
    held: Integers,
) -> int:  # fmt: skip
    n = held[0]
    step = rate[0] * np.sqrt(_ONE - power2[0]) / (_ONE - power1[0])
    rest = (step, epsilon)
    behind = 0  # the last row that is done
    for i in range(n):
        start = rows[i] * width
        for at in range(behind, start):
            _adam_step(param, m, v, at, _ZERO, b1, b2, rest)
        for j in range(width):
            _adam_step(param, m, v, start + j, value[i * width + j], b1, b2, rest)
        behind = start + width
    for at in range(behind, height * width):
        _adam_step(param, m, v, at, _ZERO, b1, b2, rest)
    return 0


@kernel(rows="param m v")
def _lazy_adam_rows(
    height: Count, width: Count, param: Floats, m: Floats, v: Floats, rate: Floats, power1: Floats,
    power2: Floats, b1: Number, b2: Number, epsilon: Number, rows: Integers, value: Floats,
    held: Integers,
) -> int:  # fmt: skip
    step = rate[0] * np.sqrt(_ONE - power2[0]) / (_ONE - power1[0])
    rest = (step, epsilon)
    for i in range(held[0]):
        start = rows[i] * width
        for j in range(width):
            _adam_step(param, m, v, start + j, value[i * width + j], b1, b2, rest)
    return 0


@kernel
def _momentum_rows(
    height: Count, width: Count, nesterov: Count, param: Floats, velocity: Floats, rate: Floats,
    mu: Number, rows: Integers, value: Floats, held: Integers,
) -> int:  # fmt: skip
    n = held[0]
    factor = rate[0]
    own, before = (_ONE, mu) if nesterov else (_ZERO, _ONE)
    behind = 0
    for i in range(n + 1):
        start = rows[i] * width if i < n else height * width
        for at in range(behind, start):
            speed = velocity[at] * mu
            velocity[at] = speed
            param[at] -= speed * before * factor
        if i < n:
            for j in range(width):
                grad = value[i * width + j]
                speed = velocity[start + j] * mu + grad
                velocity[start + j] = speed
                param[start + j] -= (speed * before + grad * own) * factor
        behind = start + width
    return 0


def _single(*values: Value | Sparse) -> bool:
    return all(value.dtype == "float32" for value in values)


@lowering("sgd", sparse=True)
def sgd(code: Code, param: Value | Sparse, rate: Value, grad: Sparse, out: Value) -> Any:
    """The rows of the gradient one after another; parameters that are sparse are left to NumPy."""
    if isinstance(param, Sparse) or not _single(param, rate, grad):
        return False
    code.emit(_sgd_rows, grad.height, grad.width, param, rate, *grad.parts)


@lowering("adagrad", sparse=True)
def adagrad(
    code: Code,
    param: Value,
    grad: Sparse,
    moment: Value,
    rate: Value,
    *outputs: Value,
    epsilon: float,
) -> Any:
    """Only the rows of the gradient."""
    if not _single(param, grad, moment, rate):
        return False
    rows = merged(code, grad)
    code.emit(_adagrad_rows, grad.width, param, moment, rate, float(epsilon), *rows.parts)


@lowering("adam", sparse=True)
def adam(
    code: Code,
    param: Value,
    grad: Sparse,
    rate: Value,
    m: Value,
    v: Value,
    power1: Value,
    power2: Value,
    beta1_tensor: Value | None,
    beta2_tensor: Value | None,
    *outputs: Value,
    beta1: float,
    beta2: float,
    epsilon: float,
    lazy_mode: bool,
) -> Any:
    """All rows, since all moments decay; in lazy mode only those of the gradient."""
    tensors = (param, grad, rate, m, v, power1, power2)
    if beta1_tensor is not None or beta2_tensor is not None or not _single(*tensors):
        return False
    rows = merged(code, grad)
    factors = float(beta1), float(beta2), float(epsilon)
    given = param, m, v, rate, power1, power2, *factors, *rows.parts
    code.emit(_lazy_adam_rows if lazy_mode else _adam_rows, grad.height, grad.width, *given)
    code.emit(advance, power1, power2, *factors[:2])


@lowering("momentum", sparse=True)
def momentum(
    code: Code,
    param: Value,
    grad: Sparse,
    velocity: Value,
    rate: Value,
    *outputs: Value,
    mu: float,
    use_nesterov: bool,
) -> Any:
    """All rows, since rows without a gradient still have a velocity."""
    if not _single(param, grad, velocity, rate):
        return False
    rows, sizes = merged(code, grad), (grad.height, grad.width, bool(use_nesterov))
    code.emit(_momentum_rows, *sizes, param, velocity, rate, float(mu), *rows.parts)
