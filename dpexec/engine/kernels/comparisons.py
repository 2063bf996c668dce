"""Comparisons of numbers, and logic on their results."""

from __future__ import annotations

import math
from typing import Any

from dpexec.engine.kernels.generate import compiled
from dpexec.engine.kernels.lowering import Code, Value, lowering

_KINDS = {"float32": "Floats", "int32": "Words", "int64": "Integers", "bool": "Octets"}
_COMPARE = """\
def {name}_{kind}(outer: Count, n: Count, inner: Count, x: {kind}, y: {kind}, out: Octets):
    if outer == 1 and inner == 1:
        for i in range(n):
            out[i] = {compared}
        return 0
    at = 0
    for _ in range(outer):
        for j in range(n):
            other = y[j]
            for i in range(at, at + inner):
                out[i] = {with_other}
            at += inner
    return 0
"""
_COMPARISONS = {
    "less_than": "<",
    "less_equal": "<=",
    "greater_than": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}
_LOGIC = """\
def {name}(n: Count, x: Octets, y: Octets, out: Octets):
    for i in range(n):
        out[i] = {result}
    return 0
"""
_RESULTS = {
    "logical_and": "(x[i] != 0) & (y[i] != 0)",
    "logical_or": "(x[i] != 0) | (y[i] != 0)",
    "logical_xor": "(x[i] != 0) ^ (y[i] != 0)",
}


def _comparison(name: str, symbol: str) -> None:
    """Declare the lowering of a comparison; y has the shape of x, or of some dimensions of it."""
    kernels = {
        dtype: compiled(
            f"{name}_{kind}",
            _COMPARE.format(
                name=name,
                kind=kind,
                compared=f"x[i] {symbol} y[i]",
                with_other=f"x[i] {symbol} other",
            ),
        )
        for dtype, kind in _KINDS.items()
    }

    @lowering(name)
    def compare(code: Code, x: Value, y: Value, out: Value, *, axis: int = -1) -> Any:
        """One pass."""
        kernel = kernels.get(x.dtype.name)
        sizes = _repeats(x, y, axis)
        if kernel is None or y.dtype != x.dtype or sizes is None or out.size != x.size:
            return False
        code.emit(kernel, *sizes, x, y, out)
        return True


def _repeats(x: Value, y: Value, axis: int) -> tuple[int, int, int] | None:
    """How often y repeats in x, its size, and how often each element repeats; None: otherwise."""
    if x.shape == y.shape:
        return 1, x.size, 1
    if y.size == 1:
        return 1, 1, x.size
    first = len(x.shape) - len(y.shape) if axis == -1 else axis
    end = first + len(y.shape)
    if first < 0 or x.shape[first:end] != y.shape:
        return None
    return math.prod(x.shape[:first]), y.size, math.prod(x.shape[end:])


def _logic(name: str, result: str) -> None:
    """Declare the lowering of an operator on two booleans."""
    kernel = compiled(name, _LOGIC.format(name=name, result=result))

    @lowering(name)
    def combine(code: Code, x: Value, y: Value, out: Value) -> Any:
        """One pass."""
        if x.size != y.size or out.size != x.size:
            return False
        code.emit(kernel, x.size, x, y, out)
        return True


for _name, _symbol in _COMPARISONS.items():
    _comparison(_name, _symbol)
for _name, _result in _RESULTS.items():
    _logic(_name, _result)
_NOT = compiled("logical_not", _LOGIC.format(name="logical_not", result="x[i] == 0"))


@lowering("logical_not")
def logical_not(code: Code, x: Value, out: Value) -> None:
    """One pass."""
    code.emit(_NOT, x.size, x, x, out)
