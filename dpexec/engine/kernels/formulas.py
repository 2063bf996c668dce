"""Operators that are formulas: losses, distances and norms, as expressions that become kernels.

A :class:`Sheet` collects expressions and reductions in order; those with the same loops become one
kernel (:mod:`dpexec.engine.kernels.groups`).
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from typing import Any

from dpexec.engine.kernels.elementwise import TOTAL
from dpexec.engine.kernels.generate import Pointwise, single
from dpexec.engine.kernels.group_source import substituted
from dpexec.engine.kernels.groups import Group
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.ops.cos_sim import SMALLEST_SQUARE

__all__ = ["Sheet", "planes"]

Shape = Sequence[int]


@functools.cache
def _expression(text: str, operands: str, factors: str) -> Pointwise:
    """An expression as a kernel, whose name is a hash of its text."""
    name = hashlib.sha1(f"{text} {operands} {factors}".encode()).hexdigest()[:12]
    own = {word: f"{word}_" for word in f"{operands} {factors}".split()}
    words = (" ".join(own[word] for word in side.split()) for side in (operands, factors))
    return Pointwise(f"formula_{name}", next(words), substituted(text, own), next(words))


class Sheet:
    """Expressions of one operator.

    Args:
        code: takes the calls.
        shape: the shape of expressions that give none.
    """

    def __init__(self, code: Code, shape: Shape) -> None:
        self.group = Group(code)
        self.shape = tuple(shape)

    def each(
        self,
        text: str,
        out: Value | None = None,
        shape: Shape | None = None,
        factors: dict[str, float] | None = None,
        **operands: Value | tuple[Value, Shape],
    ) -> Value:
        """Compute an expression at every element.

        Args:
            text: the expression, in terms of operands and factors.
            out: takes the result; None: new memory.
            shape: of the result.
            factors: numbers by name.
            operands: values by name; with a shape if they are broadcast to that of the result.
        """
        shape = self.shape if shape is None else tuple(shape)
        out = out or self.group.scratch(*shape)
        pairs = [o if isinstance(o, tuple) else (o, shape) for o in operands.values()]
        given = factors or {}
        apply = _expression(text, " ".join(operands), " ".join(given))
        values, shapes = [value for value, _ in pairs], [laid for _, laid in pairs]
        self.group.each(apply, out, values, list(given.values()), shapes, shape)
        return out

    def total(self, x: Value, axes: Sequence[int], out: Value | None = None, f: float = 1) -> Value:
        """Add up the elements along some dimensions, whose size is 1 in the result."""
        left = self.left(axes)
        out = out or self.group.scratch(*left)
        kept = [axis not in axes for axis in range(len(self.shape))]
        TOTAL.emit(self.group, x, out, self.shape, kept, f)
        return out

    def left(self, axes: Sequence[int]) -> tuple[int, ...]:
        """The shape with 1 in place of some dimensions."""
        return tuple(1 if axis in axes else size for axis, size in enumerate(self.shape))

    def done(self, *outputs: Value | None) -> bool:
        """Emit the kernels; False if that is not possible."""
        return self.group.finish([value for value in outputs if value is not None])


# ---- losses and distances


@lowering("huber_loss")
def huber_loss(
    code: Code, x: Value, y: Value, residual: Value | None, out: Value, *, delta: float
) -> Any:
    """One pass."""
    if not single(x, y):
        return False
    sheet = Sheet(code, x.shape)
    far = sheet.each("y - x", residual, x=x, y=y)
    text = "min(abs(r), delta) * (abs(r) - min(abs(r), delta) * half)"
    sheet.each(text, out, factors={"delta": delta}, r=far)
    return sheet.done(residual, out)


@lowering("huber_loss_grad")
def huber_loss_grad(
    code: Code, residual: Value, d_out: Value, dx: Value | None, dy: Value | None, *, delta: float
) -> Any:
    """One pass."""
    if not single(residual, d_out):
        return False
    sheet = Sheet(code, residual.shape)
    text = "min(max(r, -delta), delta) * d"
    share = sheet.each(text, dy, factors={"delta": delta}, r=residual, d=d_out)
    if dx is not None:
        sheet.each("-share", dx, share=share)
    return sheet.done(dx, dy)


def _rows(x: Value) -> tuple[int, int]:
    return x.shape[0], math.prod(x.shape[1:])


@lowering("smooth_l1_loss")
def smooth_l1_loss(
    code: Code, x: Value, y: Value, inside: Value | None, outside: Value | None,
    diff: Value | None, out: Value, *, sigma: float,
) -> Any:  # fmt: skip
    """Rows, one after another."""
    if not single(x, y, inside, outside):
        return False
    sheet = Sheet(code, _rows(x))
    if inside is None:
        far = sheet.each("x - y", diff, x=x, y=y)
    else:
        far = sheet.each("(x - y) * w", diff, x=x, y=y, w=inside)
    text = "min(abs(d), one / s) * (abs(d) - min(abs(d), one / s) * half) * s"
    terms = sheet.each(text, factors={"s": sigma * sigma}, d=far)
    if outside is not None:
        terms = sheet.each("t * w", t=terms, w=outside)
    sheet.total(terms, [1], out)
    return sheet.done(diff, out)


@lowering("smooth_l1_loss_grad")
def smooth_l1_loss_grad(
    code: Code, diff: Value, inside: Value | None, outside: Value | None, d_out: Value,
    dx: Value | None, dy: Value | None, *, sigma: float,
) -> Any:  # fmt: skip
    """One pass."""
    if not single(diff, inside, outside, d_out):
        return False
    sheet = Sheet(code, _rows(diff))
    slope = sheet.each("min(max(d * s, -one), one)", factors={"s": sigma * sigma}, d=diff)
    for weight in (inside, outside):
        if weight is not None:
            slope = sheet.each("d * w", d=slope, w=weight)
    share = sheet.each("d * g", dx, d=slope, g=(d_out, sheet.left([1])))
    if dy is not None:
        sheet.each("-d", dy, d=share)
    return sheet.done(dx, dy)


@lowering("log_loss")
def log_loss(code: Code, p: Value, y: Value, out: Value, *, epsilon: float) -> Any:
    """One pass."""
    if not single(p, y) or p.shape != y.shape:
        return False
    sheet = Sheet(code, p.shape)
    text = (
        "(y - one) * (log1p(max(e - p, F(-0.25))) if e - p > F(-0.25) else log(one - p + e))"
        " - y * log(p + e)"
    )
    sheet.each(text, out, factors={"e": epsilon}, p=p, y=y)
    return sheet.done(out)


@lowering("log_loss_grad")
def log_loss_grad(
    code: Code, p: Value, y: Value, d_out: Value, dp: Value, *, epsilon: float
) -> Any:
    """One pass."""
    if not single(p, y, d_out) or p.shape != y.shape:
        return False
    sheet = Sheet(code, p.shape)
    text = "d * ((one - y) / (one - p + e) - y / (p + e))"
    sheet.each(text, dp, factors={"e": epsilon}, p=p, y=y, d=d_out)
    return sheet.done(dp)


@lowering("hinge_loss")
def hinge_loss(code: Code, x: Value, y: Value, out: Value) -> Any:
    """One pass."""
    if not single(x, y) or x.shape != y.shape:
        return False
    sheet = Sheet(code, x.shape)
    sheet.each("max(one - (two * y - one) * x, zero)", out, x=x, y=y)
    return sheet.done(out)


@lowering("hinge_loss_grad")
def hinge_loss_grad(code: Code, x: Value, y: Value, d_out: Value, dx: Value) -> Any:
    """One pass."""
    if not single(x, y, d_out) or x.shape != y.shape:
        return False
    sheet = Sheet(code, x.shape)
    text = "d * (one - two * y) if (two * y - one) * x < one else zero"
    sheet.each(text, dx, x=x, y=y, d=d_out)
    return sheet.done(dx)


@lowering("cos_sim")
def cos_sim(
    code: Code, x: Value, y: Value, out: Value, x_norm: Value | None, y_norm: Value | None
) -> Any:
    """Rows, one after another; both operands have as many."""
    if not single(x, y) or x.shape != y.shape:
        return False
    sheet = Sheet(code, _rows(x))
    norms, least = [], {"e": SMALLEST_SQUARE}
    for value, norm in ((x, x_norm), (y, y_norm)):
        squares = sheet.total(sheet.each("v * v", v=value), [1])
        length = sheet.each("sqrt(max(s, e))", norm, sheet.left([1]), least, s=squares)
        norms.append(length)
    along = sheet.total(sheet.each("x * y", x=x, y=y), [1])
    sheet.each("d / (a * b)", out, sheet.left([1]), d=along, a=norms[0], b=norms[1])
    return sheet.done(out, x_norm, y_norm)


@lowering("cos_sim_grad")
def cos_sim_grad(
    code: Code, x: Value, y: Value, out: Value, x_norm: Value, y_norm: Value, d_out: Value,
    dx: Value | None, dy: Value | None,
) -> Any:  # fmt: skip
    """Rows, one after another."""
    if not single(x, y, d_out) or x.shape != y.shape:
        return False
    sheet = Sheet(code, _rows(x))
    row = sheet.left([1])
    for grad, a, b, a_norm, b_norm in ((dx, x, y, x_norm, y_norm), (dy, y, x, y_norm, x_norm)):
        if grad is not None:
            share = sheet.each("d / n", None, row, d=d_out, n=a_norm)
            sheet.each(
                "(b / bn - c * (a / an)) * s", grad,
                a=a, b=b, an=(a_norm, row), bn=(b_norm, row), c=(out, row), s=(share, row),
            )  # fmt: skip
    return sheet.done(dx, dy)


# ---- norms


def _around(x: Value, axis: int) -> tuple[int, int, int]:
    axis %= len(x.shape)
    return math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])


@lowering("norm")
def norm(
    code: Code, x: Value, length: Value | None, out: Value, *, axis: int, epsilon: float
) -> Any:
    """Along the last dimension, a row after another; else two passes."""
    if not single(x):
        return False
    sheet = Sheet(code, _around(x, axis))
    row = sheet.left([1])
    squares = sheet.total(sheet.each("x * x", x=x), [1])
    root = sheet.each("sqrt(s + e)", length, row, {"e": epsilon}, s=squares)
    sheet.each("x / r", out, x=x, r=(root, row))
    return sheet.done(length, out)


@lowering("norm_grad")
def norm_grad(
    code: Code, x: Value, length: Value, d_out: Value, dx: Value, *, axis: int, epsilon: float
) -> Any:
    """Along the last dimension, a row after another; else two passes."""
    if not single(x, d_out):
        return False
    sheet = Sheet(code, _around(x, axis))
    row = sheet.left([1])
    along = sheet.total(sheet.each("x * d", x=x, d=d_out), [1])
    share = sheet.each("s / (r * r)", None, row, s=along, r=length)
    sheet.each("(d - x * s) / r", dx, x=x, d=d_out, s=(share, row), r=(length, row))
    return sheet.done(dx)


@lowering("clip_by_norm")
def clip_by_norm(code: Code, x: Value, out: Value, *, max_norm: float) -> Any:
    """The norm, then one pass."""
    if not single(x):
        return False
    sheet = Sheet(code, (x.size,))
    squares = sheet.total(sheet.each("x * x", x=x), [0])
    limit = {"limit": max_norm}
    factor = sheet.each("limit / sqrt(s) if sqrt(s) > limit else one", None, (1,), limit, s=squares)
    sheet.each("x * f", out, x=x, f=(factor, (1,)))
    return sheet.done(out)


@lowering("squared_l2_norm_grad")
def squared_l2_norm_grad(code: Code, x: Value, d_out: Value, dx: Value) -> Any:
    """One pass."""
    if not single(x, d_out):
        return False
    sheet = Sheet(code, (x.size,))
    sheet.each("two * d * x", dx, x=x, d=(d_out, (1,)))
    return sheet.done(dx)


# ---- a number per channel


def planes(x: Value, last: bool = False) -> tuple[int, int, int]:
    """Sizes of an image: batch, channels, and the product of the dimensions after them."""
    if last:
        return math.prod(x.shape[:-1]), x.shape[-1], 1
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


@lowering("prelu")
def prelu(code: Code, x: Value, alpha: Value, out: Value, *, mode: str) -> Any:
    """One pass."""
    if not single(x, alpha):
        return False
    sheet, shape = _slopes(code, x, mode)
    sheet.each("x if x > zero else x * a", out, x=x, a=(alpha, shape))
    return sheet.done(out)


@lowering("prelu_grad")
def prelu_grad(
    code: Code, x: Value, alpha: Value, d_out: Value, dx: Value | None, d_alpha: Value | None,
    *, mode: str,
) -> Any:  # fmt: skip
    """One pass, and the sums over elements with the same slope."""
    if not single(x, alpha, d_out):
        return False
    sheet, shape = _slopes(code, x, mode)
    if dx is not None:
        sheet.each("d if x > zero else d * a", dx, x=x, d=d_out, a=(alpha, shape))
    if d_alpha is not None:
        axes = [axis for axis in range(3) if shape[axis] == 1]
        sheet.total(sheet.each("d * min(x, zero)", x=x, d=d_out), axes, d_alpha)
    return sheet.done(dx, d_alpha)


def _slopes(code: Code, x: Value, mode: str) -> tuple[Sheet, tuple[int, ...]]:
    """The sheet for ``prelu``, and the shape of its slopes in it."""
    shape = (1, 1, x.size) if mode == "all" or len(x.shape) < 2 else planes(x)
    sheet = Sheet(code, shape)
    return sheet, sheet.left({"all": [0, 1, 2], "channel": [0, 2], "element": [0]}[mode])
