"""Functions of one number that are one operator of ONNX."""

from __future__ import annotations

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need

_SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "asin": "Asin",
    "atan": "Atan",
    "ceil": "Ceil",
    "cos": "Cos",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "log": "Log",
    "logical_not": "Not",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "softsign": "Softsign",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
}


_INTEGERS = ("abs", "logical_not", "sign")


@exports(*_SAME, without="functions of integers that round")
def unary(c: Call) -> None:
    """The operator of the same meaning."""
    need(c.dtype("X").kind == "f" or c.op.type in _INTEGERS, f"its input is {c.dtype('X')}")
    c.set("Out", c.g.node(_SAME[c.op.type], c["X"]))
