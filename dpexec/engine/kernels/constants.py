"""Numbers that need no input: constants, and the dimensions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.kernels.lowering import Code, Constant, Value, lowering
from dpexec.engine.kernels.machine import Count, Words, kernel
from dpexec.engine.kernels.shapes import clear, known, move

__all__: list[str] = []

_FEW = 1 << 14


@kernel
def _number(place: Count, number: Count, out: Words) -> int:
    """Set an element. Arguments: which one, the number, the vector."""
    out[place] = np.int32(number)
    return 0


@lowering("shape")
def shape(code: Code, x: Value, out: Value) -> Any:
    """One call for every dimension."""
    for place, number in enumerate(x.shape):
        code.emit(_number, place, number, out)


@lowering("fill_constant")
def fill_constant(
    code: Code, number: Value | None, tensor: Value | None, parts: list[Value], out: Value,
    *, value: float, str_value: str,
) -> Any:  # fmt: skip
    """One pass."""
    if number is not None or tensor is not None or parts or not known(out):
        return False
    clear(code, out, str_value or value)  # the text has all digits of an integer


@lowering("assign_value")
def assign_value(
    code: Code, out: Value, *, fp32_values: Sequence[float], int32_values: Sequence[int],
    int64_values: Sequence[int],
) -> Any:  # fmt: skip
    """One copy of a few elements; many elements are initial values, which run once."""
    if not known(out) or out.dtype == "bool" or out.size > _FEW:
        return False
    values = {"float32": fp32_values, "int32": int32_values, "int64": int64_values}[out.dtype.name]
    given = Constant(np.array(values, out.dtype))
    return move(code, given, out, (out.size,), (0, [1]), (0, [1]))


@lowering("fill_zeros_like")
def fill_zeros_like(code: Code, x: Value, out: Value) -> Any:
    """One pass."""
    if not known(out):
        return False
    clear(code, out)
