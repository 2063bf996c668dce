"""Functions of one number, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

_SAME = {
    "Abs": "abs",
    "Acos": "acos",
    "Asin": "asin",
    "Atan": "atan",
    "Ceil": "ceil",
    "Cos": "cos",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "log",
    "Reciprocal": "reciprocal",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}


@operator(*_SAME)
def unary(node: Node) -> Any:
    """An operator of fluid does the same."""
    return node.add(_SAME[node.op_type], {"X": node.var(0)})


@operator("Neg")
def negate(node: Node) -> Any:
    """``-x``."""
    return node.scaled(node.var(0), -1.0)


@operator("Sign")
def sign(node: Node) -> Any:
    """-1, 0 or 1."""
    return node.add("sign", {"X": node.var(0)})


@operator("Round")
def round_half_to_even(node: Node) -> Any:
    """Halves go to the even neighbour; fluid's ``round`` takes the one away from zero."""
    return rounded(node, node.var(0))


def rounded(node: Node, x: Variable) -> Variable:
    """``x`` rounded, halves to the even neighbour: twice the rounded half where it is a half."""
    below = node.add("floor", {"X": x})
    share = node.binary("elementwise_sub", x, below)
    even = node.scaled(node.add("floor", {"X": node.scaled(below, 0.5)}), 2.0)
    odd = node.cast(node.binary("not_equal", below, even), x.dtype)
    half = node.number(0.5, x.dtype)
    more = node.cast(node.binary("greater_than", share, half), x.dtype)
    tie = node.cast(node.binary("equal", share, half), x.dtype)
    step = node.binary("elementwise_add", more, node.binary("elementwise_mul", tie, odd))
    return node.binary("elementwise_add", below, step)


def _exp(node: Node, x: Variable, sign: float = 1.0) -> Variable:
    return node.add("exp", {"X": node.scaled(x, sign)})


def _sinh(node: Node, x: Variable) -> Variable:
    two = node.binary("elementwise_sub", _exp(node, x), _exp(node, x, -1.0))
    return node.scaled(two, 0.5)


def _cosh(node: Node, x: Variable) -> Variable:
    two = node.binary("elementwise_add", _exp(node, x), _exp(node, x, -1.0))
    return node.scaled(two, 0.5)


def _tan(node: Node, x: Variable) -> Variable:
    return node.binary("elementwise_div", node.add("sin", {"X": x}), node.add("cos", {"X": x}))


def _asinh(node: Node, x: Variable) -> Variable:
    size = node.add("abs", {"X": x})
    root = node.add("sqrt", {"X": node.scaled(node.add("square", {"X": x}), bias=1.0)})
    grown = node.add("log", {"X": node.binary("elementwise_add", size, root)})
    return node.binary("elementwise_mul", grown, node.add("sign", {"X": x}))


def _acosh(node: Node, x: Variable) -> Variable:
    root = node.add("sqrt", {"X": node.scaled(node.add("square", {"X": x}), bias=-1.0)})
    return node.add("log", {"X": node.binary("elementwise_add", x, root)})


def _atanh(node: Node, x: Variable) -> Variable:
    ratio = node.binary("elementwise_div", node.scaled(x, bias=1.0), node.scaled(x, -1.0, 1.0))
    return node.scaled(node.add("log", {"X": ratio}), 0.5)


_COMPOSED: dict[str, Callable[[Node, Variable], Variable]] = {
    "Acosh": _acosh,
    "Asinh": _asinh,
    "Atanh": _atanh,
    "Cosh": _cosh,
    "Sinh": _sinh,
    "Tan": _tan,
}


@operator(*_COMPOSED)
def composed(node: Node) -> Any:
    """Several operators of fluid do the same."""
    if not is_float(node.value(0).dtype):
        node.fail("takes real numbers")
    return _COMPOSED[node.op_type](node, node.var(0))
