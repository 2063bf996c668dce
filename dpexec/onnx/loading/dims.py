"""Sizes that depend on the batch, in arithmetic on shapes while a model is loaded.

PyTorch's exporters compute shapes in the graph: ``Shape``, ``Gather``, ``Mul``, ``Concat``,
``Reshape``. Loading computes them with NumPy arrays of objects: a known size is an integer, an open
size an :class:`OpenDim`. Operators are made only for open sizes that another operator needs as a
tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.engine.ir.variable import Variable

__all__ = ["OpenDim", "UnknownNumberError", "as_dims", "has_open"]

_COMMUTES = {"elementwise_add", "elementwise_mul", "elementwise_max", "elementwise_min"}


class UnknownNumberError(Exception):
    """A comparison depends on an open size."""


class OpenDim:
    """An open size, which is never negative.

    Args:
        key: equal for sizes that are known to be equal.
        make: adds operators that compute it; returns a variable of one integer (int64).
        combine: ``combine(op_type, a, b)`` adds an operator on two sizes.
    """

    def __init__(
        self, key: Any, make: Callable[[], Variable], combine: Callable[[str, Any, Any], Variable]
    ) -> None:
        self.key = key
        self.make = make
        self.combine = combine

    def _with(self, op_type: str, left: Any, right: Any) -> OpenDim:
        keys = [getattr(side, "key", side) for side in (left, right)]
        if op_type in _COMMUTES:
            keys.sort(key=repr)
        return OpenDim((op_type, *keys), lambda: self.combine(op_type, left, right), self.combine)

    def __add__(self, other: Any) -> Any:
        return self if _is(other, 0) else self._with("elementwise_add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if _is(other, 0):
            return self
        return 0 if self.same(other) else self._with("elementwise_sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("elementwise_sub", other, self)

    def __mul__(self, other: Any) -> Any:
        if _is(other, 1):
            return self
        return 0 if _is(other, 0) else self._with("elementwise_mul", self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if _is(other, 1):
            return self
        if self.same(other):
            return 1
        if isinstance(self.key, tuple) and self.key[0] == "elementwise_mul":
            rest = [part for part in self.key[1:] if part != getattr(other, "key", other)]
            if len(rest) == 1 and isinstance(rest[0], int):
                return rest[0]
        return self._with("elementwise_floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with("elementwise_floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return self._with("elementwise_mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._with("elementwise_mod", other, self)

    def at_least(self, least: int) -> OpenDim:
        """The size, or ``least`` where it is smaller."""
        return self._with("elementwise_max", self, least)

    def same(self, other: Any) -> bool:
        """Whether both are known to be equal."""
        return isinstance(other, OpenDim) and other.key == self.key

    def __eq__(self, other: object) -> bool:
        if isinstance(other, OpenDim):
            if other.key == self.key:
                return True
            raise UnknownNumberError
        if isinstance(other, int) and other < 0:
            return False
        raise UnknownNumberError

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"OpenDim({self.key!r})"


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int) and value == number


def has_open(array: Any) -> bool:
    """Whether an array contains open sizes."""
    return array is not None and array.dtype == object


def as_dims(array: Any) -> list[Any]:
    """The elements of an array as integers and open sizes."""
    return [v if isinstance(v, OpenDim) else int(v) for v in array.reshape(-1).tolist()]
