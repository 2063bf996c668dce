"""Elementwise functions: activations and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.kernels.generate import Pointwise, single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.shapes import clear

# Operator type, attributes, forward, the value that the gradient reads besides dy (x or y), and
# gradient. Expressions use x, y = forward(x), dy and the attributes.

_ONE_OPERAND: Sequence[tuple[str, str, str, str, str]] = (
    ("relu", "", "max(x, zero)", "y", "dy if y > zero else zero"),
    ("leaky_relu", "alpha", "x if x > zero else x * alpha", "y", "dy if y > zero else dy * alpha"),
    ("relu6", "threshold", "min(max(x, zero), threshold)", "y",
     "dy if y > zero and y < threshold else zero"),
    ("brelu", "t_min t_max", "min(max(x, t_min), t_max)", "x",
     "dy if x > t_min and x < t_max else zero"),
    ("thresholded_relu", "threshold", "zero if x <= threshold else x", "x",
     "dy if x > threshold else zero"),
    ("sigmoid", "", "sigmoid(x)", "y", "dy * y * (one - y)"),
    ("tanh", "", "tanh(x)", "y", "dy * ((one - y) * (one + y))"),
    ("exp", "", "exp(x)", "y", "dy * y"),
    ("erf", "", "erf(x)", "x", "dy * erf_slope(x)"),
    ("log", "", "log(x)", "x", "dy / x"),
    ("log1p", "", "log1p_of_any(x)", "x", "dy / (one + x)"),
    ("sqrt", "", "sqrt(x)", "y", "dy * half / y"),
    ("rsqrt", "", "one / sqrt(x)", "y", "-half * dy * y * y * y"),
    ("reciprocal", "", "one / x", "y", "-dy * y * y"),
    ("square", "", "x * x", "x", "two * (x * dy)"),
    ("abs", "", "abs(x)", "x", "dy if x > zero else (-dy if x < zero else x * zero)"),
    ("swish", "beta", "x * sigmoid(beta * x)", "x",
     "dy * sigmoid(beta * x) * (one + beta * x * against(beta * x))"),
    ("softsign", "", "x / (one + abs(x))", "x", "dy / ((one + abs(x)) * (one + abs(x)))"),
    ("stanh", "scale_a scale_b", "tanh(x * scale_a) * scale_b", "x",
     "dy * steepness(x * scale_a) * (scale_a * scale_b)"),
    ("hard_sigmoid", "slope offset", "min(max(x * slope + offset, zero), one)", "y",
     "dy * slope if y > zero and y < one else zero"),
    ("hard_swish", "threshold scale offset",
     "x * (min(max(x + offset, zero), threshold) / scale)", "x",
     "dy * ((two * x + offset if x + offset > zero else zero)"
     " if x + offset < threshold else threshold) / scale"),
    ("elu", "alpha", "x if x > zero else alpha * expm1(min(x, zero))", "x",
     "dy if x > zero else dy * alpha * exp(min(x, zero))"),
    ("softplus", "", "max(x, zero) + log1p(exp(-abs(x)))", "x", "dy * sigmoid(x)"),
    ("logsigmoid", "", "min(x, zero) - log1p(exp(-abs(x)))", "x", "dy * sigmoid(-x)"),
    ("soft_relu", "threshold",
     "max(min(max(x, -threshold), threshold), zero)"
     " + log1p(exp(-abs(min(max(x, -threshold), threshold))))", "y",
     "zero if y >= threshold else dy * -expm1(-y)"),
    ("hard_shrink", "threshold", "zero if abs(x) <= threshold else x", "x",
     "dy if abs(x) > threshold else zero"),
    ("tanh_shrink", "", "tanh_shrink(x)", "x", "dy * tanh(x) * tanh(x)"),
)  # fmt: skip


def _one_operand(type: str, attributes: str, forward: str, reads: str, gradient: str) -> None:
    """Lowerings of an operator with one operand, and of its gradient."""
    names = attributes.split()
    apply = Pointwise(type, "x", forward, attributes)
    back = Pointwise(f"{type}_grad", f"{reads} dy", gradient, attributes)

    @lowering(type, layout="pointwise", attrs=names)
    def lower(code: Code, x: Value, out: Value, **attrs: Any) -> Any:
        if not single(x):
            return False
        apply.emit(code, out, x, factors=[attrs[name] for name in names], reuse=True)

    @lowering(f"{type}_grad", layout="pointwise", attrs=names)
    def lower_grad(code: Code, read: Value, d_out: Value, dx: Value, **attrs: Any) -> Any:
        if not single(read, d_out):
            return False
        factors = [attrs[name] for name in names]
        back.emit(code, dx, read, d_out, factors=factors, reuse=True)


for _row in _ONE_OPERAND:
    _one_operand(*_row)


# ---- selu: its gradient adds the product of both constants, which is rounded once

_SELU = Pointwise(
    "selu", "x", "scale * (x if x > zero else alpha * expm1(min(x, zero)))", "alpha scale"
)
_SELU_GRAD = Pointwise("selu_grad", "y dy", "dy * (scale if y > zero else y + low)", "scale low")


@lowering("selu", layout="pointwise")
def selu(code: Code, x: Value, out: Value, *, alpha: float, scale: float) -> Any:
    """One pass."""
    if not single(x):
        return False
    _SELU.emit(code, out, x, factors=[alpha, scale], reuse=True)


@lowering("selu_grad", layout="pointwise")
def selu_grad(
    code: Code, out: Value, d_out: Value, dx: Value, *, alpha: float, scale: float
) -> Any:
    """One pass."""
    if not single(out, d_out):
        return False
    _SELU_GRAD.emit(code, dx, out, d_out, factors=[scale, scale * alpha], reuse=True)


# ---- gelu: x times the probability of a smaller number, by one of two formulas

_INNER = "F(1.5957691216057308) * x * (one + F(0.044715) * x * x)"
_ABOUT = f"sigmoid({_INNER})"
_STEEP = "min(max(x, F(-40)), F(40))"  # beyond these bounds the curve is flat
_SLOPE = f"against({_INNER}) * F(1.5957691216057308) * (one + F(0.134145) * {_STEEP} * {_STEEP})"
_GELU = (
    Pointwise("gelu", "x", "x * normal(x)"),
    Pointwise("gelu_about", "x", f"x * {_ABOUT}"),
)
_GELU_GRAD = (
    Pointwise("gelu_grad", "x dy", "dy * (normal(x) + x * bell(x) * F(0.39894228))"),
    Pointwise("gelu_about_grad", "x dy", f"dy * {_ABOUT} * (one + {_STEEP} * {_SLOPE})"),
)


@lowering("gelu", layout="pointwise")
def gelu(code: Code, x: Value, out: Value, *, approximate: bool) -> Any:
    """One pass."""
    if not single(x):
        return False
    _GELU[approximate].emit(code, out, x, reuse=True)


@lowering("gelu_grad", layout="pointwise")
def gelu_grad(code: Code, x: Value, d_out: Value, dx: Value, *, approximate: bool) -> Any:
    """One pass."""
    if not single(x, d_out):
        return False
    _GELU_GRAD[approximate].emit(code, dx, x, d_out, reuse=True)


# ---- steps, whose gradient is 0

_STEPS = {
    "ceil": "np.ceil(x)",
    "floor": "np.floor(x)",
    "round": "np.rint(x)",
    "sign": "one if x > zero else (-one if x < zero else x)",
}


def _step(type: str, expression: str) -> None:
    """The lowering of an operator that is constant almost everywhere."""
    apply = Pointwise(type, "x", expression)

    @lowering(type, layout="pointwise")
    def lower(code: Code, x: Value, out: Value) -> Any:
        if not single(x):
            return False
        apply.emit(code, out, x, reuse=True)


for _type, _expression in _STEPS.items():
    _step(_type, _expression)


@lowering("ceil_grad", "floor_grad", "round_grad")
def no_slope(code: Code, d_out: Value, dx: Value) -> Any:
    """Zeros."""
    if not single(d_out):
        return False
    clear(code, dx)
