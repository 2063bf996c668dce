"""Python's operators of the arrays: ``a + b`` is ``cupy.add(a, b)``."""

from __future__ import annotations

import operator

__all__ = ["add_operators"]

_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "lshift": "left_shift",
    "rshift": "right_shift", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip
_COMPARE = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
    "ne": "not_equal",
}  # fmt: skip
_UNARY = {"neg": "negative", "abs": "absolute", "invert": "invert", "pos": "positive"}


def add_operators(kind):
    """Give a class all operators.

    Args:
        kind: of arrays; its ``machine.module`` has the functions.
    """
    for short, name in {**_BINARY, "matmul": "matmul"}.items():
        function = operator.attrgetter(name)
        setattr(kind, f"__{short}__", _operator(function, False))
        setattr(kind, f"__r{short}__", _operator(function, True))
        if name != "matmul":
            setattr(kind, f"__i{short}__", _in_place(function))
    for short, name in {**_COMPARE, **_UNARY}.items():
        setattr(kind, f"__{short}__", _operator(operator.attrgetter(name), False))


def _operator(function, reflected):
    def method(self, other=None):
        if other is None:
            return function(self.machine.module)(self)
        pair = (other, self) if reflected else (self, other)
        return function(self.machine.module)(*pair)

    return method


def _in_place(function):
    def method(self, other):
        return function(self.machine.module)(self, other, out=self)

    return method
