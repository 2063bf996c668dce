"""Elementwise operators with broadcasting, and the sums in their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.kernels.generate import Pointwise, Reduction, single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.shapes import duplicate
from dpexec.engine.kernels.strides import regular

__all__ = ["ADD", "COPY", "DIVIDE", "MULTIPLY", "SCALE", "SUBTRACT", "TOTAL"]

# ---- two operands, which may be repeated

ADD = Pointwise("add", "x y", "x + y")
COPY = Pointwise("copy", "x", "x")
SCALE = Pointwise("scale", "x", "x * factor + offset", "factor offset")
TOTAL = Reduction("total", "zero", "total + value")
MULTIPLY = Pointwise("multiply", "x y", "x * y")
DIVIDE = Pointwise("divide", "x y", "x / y")
SUBTRACT = Pointwise("subtract", "x y", "x - y")
_GREATER = Pointwise("greater", "x y", "one if x > y else zero")
_NOT_GREATER = Pointwise("not_greater", "x y", "zero if x > y else one")
_LESS = Pointwise("less", "x y", "one if x < y else zero")
_NOT_LESS = Pointwise("not_less", "x y", "zero if x < y else one")

SINGLE = np.dtype(np.float32)

Shape = tuple[int, ...]


class _Two:
    """Two operands and how they lie in the shape of their result, in the order of memory.

    Args:
        code: takes the calls.
        x: the first operand.
        y: the second operand.
        out: the result, or its gradient.
        axis: where the smaller operand lies in the larger one.
        last: whether channels should be last in memory, if that is possible.
    """

    def __init__(self, code: Code, x: Value, y: Value, out: Value, axis: int, last: bool) -> None:
        self.code = code
        shapes = [_laid(value.shape, out.shape, axis) for value in (x, y)]
        self.last = last and all(shape == out.shape or not _planes(shape) for shape in shapes)
        self.shapes = [_turned(shape) if self.last else shape for shape in shapes]
        self.shape = _turned(out.shape) if self.last else out.shape
        self.x, self.y = (
            code.laid(value, self.last and value.shape == out.shape) for value in (x, y)
        )
        self.usable = single(x, y, out) and regular(self.shapes, self.shape)

    def combine(self, apply: Pointwise, out: Value, reuse: bool = False) -> None:
        """``out = apply(x, y)``."""
        out.channels_last = self.last and out.has_planes
        laid = (self.shapes[0], self.shapes[1])
        apply.broadcast(self.code, out, self.x, self.y, laid, self.shape, reuse)

    def times(self, apply: Pointwise, grad: Value, number: int, result: Value | None) -> Value:
        """``apply(grad, operand)`` for operand 0 or 1; may use the memory of ``result``."""
        out = result if result is not None and result.size == grad.size else None
        found = out or self.code.scratch(*grad.shape)
        found.channels_last = grad.channels_last
        other, laid = (self.x, self.y)[number], self.shapes[number]
        apply.broadcast(self.code, found, grad, other, (self.shape, laid), self.shape)
        return found

    def compared(self, apply: Pointwise, grad: Value) -> Value:
        """``apply(x, y)`` for elements of the size of the result."""
        found = self.code.scratch(*grad.shape)
        self.combine(apply, found)
        return found

    def give(self, number: int, grad: Value, result: Value, factor: float = 1.0) -> None:
        """The gradient of operand 0 or 1: the sum over its repetitions, times a factor."""
        if result.size < grad.size:
            kept = [a == b for a, b in zip(self.shapes[number], self.shape, strict=True)]
            TOTAL.emit(self.code, grad, result, self.shape, kept, factor)
            return
        result.channels_last = grad.channels_last
        if factor != 1.0:
            SCALE.emit(self.code, result, grad, factors=(factor, 0.0))
        elif grad is not result:
            duplicate(self.code, grad, result)


def _planes(shape: Shape) -> bool:
    return Value(shape, SINGLE).has_planes


def _turned(shape: Shape) -> Shape:
    return (shape[0], *shape[2:], shape[1])


def _laid(shape: Shape, out: Shape, axis: int) -> Shape:
    """A shape laid into that of the result, from ``axis`` on."""
    if len(shape) == len(out):
        return shape
    start = len(out) - len(shape) if axis == -1 else axis
    while shape and start + len(shape) > len(out) and shape[-1] == 1:
        shape = shape[:-1]
    return (1,) * start + shape + (1,) * (len(out) - start - len(shape))


def _summed_last(
    x: Value, y: Value, grad: Value, results: tuple[Value | None, Value | None], axis: int
) -> bool:
    """Whether channels of a gradient should be last in memory.

    Sums are computed in the order of memory. So the layout of their operands follows from shapes
    alone, and not from the layout in which they come, which depends on how tasks are divided.
    """
    for value, result in zip((x, y), results, strict=True):
        if grad.has_planes and result is not None and result.size < grad.size:
            return _laid(value.shape, grad.shape, axis)[1] == grad.shape[1]
    return grad.channels_last


def _two_operands(type: str, apply: Pointwise) -> None:
    @lowering(f"elementwise_{type}", layout="own")
    def lower(code: Code, x: Value, y: Value, out: Value, *, axis: int) -> Any:
        two = _Two(code, x, y, out, axis, x.channels_last or y.channels_last)
        if not two.usable:
            return False
        two.combine(apply, out, reuse=True)


_two_operands("add", ADD)
_two_operands("sub", SUBTRACT)
_two_operands("mul", MULTIPLY)
_two_operands("div", DIVIDE)
_two_operands("max", Pointwise("maximum", "x y", "y if y > x or y != y else x"))
_two_operands("min", Pointwise("minimum", "x y", "y if y < x or y != y else x"))


Give = Callable[[_Two, Value, "Value | None", "Value | None"], None]


def _two_operands_grad(type: str) -> Callable[[Give], Give]:
    """Make a function the lowering of a gradient: gets operands, gradient and results."""

    def decorate(give: Give) -> Give:
        @lowering(f"elementwise_{type}_grad", layout="own")
        def lower(
            code: Code, x: Value, y: Value, d_out: Value, dx: Any, dy: Any, *, axis: int
        ) -> Any:
            two = _Two(code, x, y, d_out, axis, _summed_last(x, y, d_out, (dx, dy), axis))
            if not two.usable:
                return False
            give(two, code.laid(d_out, two.last), dx, dy)

        return give

    return decorate


def _linear(sign: float) -> Give:
    def give(two: _Two, grad: Value, dx: Value | None, dy: Value | None) -> None:
        if dx is not None:
            two.give(0, grad, dx)
        if dy is not None:
            two.give(1, grad, dy, sign)

    return give


_two_operands_grad("add")(_linear(1.0))
_two_operands_grad("sub")(_linear(-1.0))


@_two_operands_grad("mul")
def _product_grad(two: _Two, grad: Value, dx: Value | None, dy: Value | None) -> None:
    """The gradient times the other operand."""
    for number, result in enumerate((dx, dy)):
        if result is not None:
            two.give(number, two.times(MULTIPLY, grad, 1 - number, result), result)


def _choice_grad(type: str, first: Pointwise, second: Pointwise) -> None:
    @_two_operands_grad(type)
    def give(two: _Two, grad: Value, dx: Value | None, dy: Value | None) -> None:
        for number, (result, chosen) in enumerate(((dx, first), (dy, second))):
            if result is not None:
                share = two.compared(chosen, grad)
                MULTIPLY.add_to(two.code, share, grad)
                two.give(number, share, result)


_choice_grad("max", _GREATER, _NOT_GREATER)
_choice_grad("min", _LESS, _NOT_LESS)


@lowering("elementwise_div_grad", layout="own")
def elementwise_div_grad(
    code: Code, x: Value, y: Value, out: Value, d_out: Value, dx: Any, dy: Any, *, axis: int
) -> Any:
    """``d_out / y`` for X and ``-d_out * out / y`` for Y."""
    two = _Two(code, x, y, d_out, axis, _summed_last(x, y, d_out, (dx, dy), axis))
    if not two.usable:
        return False
    share = two.times(DIVIDE, code.laid(d_out, two.last), 1, dx)
    if dx is not None:
        two.give(0, share, dx)
    if dy is not None:
        total = code.scratch(*d_out.shape)
        total.channels_last = share.channels_last
        MULTIPLY.emit(code, total, share, code.laid(out, two.last))
        two.give(1, total, dy, -1.0)
