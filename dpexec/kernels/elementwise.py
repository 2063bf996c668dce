"""Operators that work element by element, with broadcasting and the sums that gradients need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dpexec.kernels.generate import Pointwise, Reduction, single
from dpexec.kernels.lowering import Code, Value, lowering
from dpexec.kernels.shapes import copy

__all__ = ["ADD", "MULTIPLY", "TOTAL"]

# ---- one operand: operator type, forward, what the gradient reads besides dy, gradient; all in
# terms of x, y = forward(x), dy and attributes

_ONE_OPERAND: Sequence[tuple[str, str, str, str, str]] = (
    ("relu", "", "max(x, zero)", "y", "dy if y > zero else zero"),
    ("leaky_relu", "alpha", "x if x > zero else x * alpha", "y", "dy if y > zero else dy * alpha"),
    ("relu6", "threshold", "min(max(x, zero), threshold)", "y",
     "dy if y > zero and y < threshold else zero"),
    ("brelu", "t_min t_max", "min(max(x, t_min), t_max)", "x",
     "dy if x > t_min and x < t_max else zero"),
    ("thresholded_relu", "threshold", "x if x > threshold else zero", "x",
     "dy if x > threshold else zero"),
    ("sigmoid", "", "sigmoid(x)", "y", "dy * y * (one - y)"),
    ("tanh", "", "tanh(x)", "y", "dy * (one - y * y)"),
    ("exp", "", "exp(x)", "y", "dy * y"),
    ("log", "", "log(x)", "x", "dy / x"),
    ("sqrt", "", "sqrt(x)", "y", "dy * half / y"),
    ("rsqrt", "", "one / sqrt(x)", "y", "-half * dy * y * y * y"),
    ("reciprocal", "", "one / x", "y", "-dy * y * y"),
    ("square", "", "x * x", "x", "two * (x * dy)"),
    ("abs", "", "abs(x)", "x", "dy if x > zero else (-dy if x < zero else zero)"),
    ("swish", "beta", "x * sigmoid(beta * x)", "x",
     "dy * sigmoid(beta * x) * (one + beta * x * (one - sigmoid(beta * x)))"),
    ("softsign", "", "x / (one + abs(x))", "x", "dy / ((one + abs(x)) * (one + abs(x)))"),
    ("stanh", "scale_a scale_b", "tanh(x * scale_a) * scale_b", "x",
     "dy * (one - tanh(x * scale_a) * tanh(x * scale_a)) * (scale_a * scale_b)"),
    ("hard_sigmoid", "slope offset", "min(max(x * slope + offset, zero), one)", "y",
     "dy * slope if y > zero and y < one else zero"),
    ("hard_swish", "threshold scale offset",
     "x * min(max(x + offset, zero), threshold) / scale", "x",
     "dy * ((two * x + offset if x + offset > zero else zero)"
     " if x + offset < threshold else threshold) / scale"),
)  # fmt: skip


def _register(type: str, attributes: str, forward: str, reads: str, gradient: str) -> None:
    """Lowerings of an operator with one operand, and of its gradient."""
    names = attributes.split()
    apply = Pointwise(type, "x", forward, attributes)
    back = Pointwise(f"{type}_grad", f"{reads} dy", gradient, attributes)

    def lower(code: Code, x: Value, out: Value, **attrs: Any) -> Any:
        if not single(x):
            return False
        apply.emit(code, out, x, factors=[attrs[name] for name in names])

    def lower_grad(code: Code, read: Value, d_out: Value, dx: Value, **attrs: Any) -> Any:
        if not single(read, d_out):
            return False
        back.emit(code, dx, read, d_out, factors=[attrs[name] for name in names])

    for suffix, function in (("", lower), ("_grad", lower_grad)):
        lowering(type + suffix, attrs=names)(function)


for row in _ONE_OPERAND:
    _register(*row)
