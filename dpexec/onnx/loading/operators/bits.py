"""Bits of integers: ``BitwiseAnd`` and its kin, ``BitShift``.

Fluid has no operators for them, so integers are taken apart by exact divisions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

_BITS = {VarType.UINT8: 8, VarType.INT8: 8, VarType.INT32: 32, VarType.INT64: 64}
_MOST = 62.0
"""A power of 2 by which any integer, but the largest, is divided to its sign."""


def _width(node: Node) -> int:
    """The number of bits of the first input's type."""
    dtype = node.value(0).dtype
    if dtype not in _BITS:
        node.fail("its inputs are no integers")
    return _BITS[dtype]


def _wide(node: Node, index: int) -> Variable:
    return node.cast(node.var(index), VarType.INT64)


def _remainder(node: Node, x: Variable, powers: Variable) -> Variable:
    """What integers leave of powers of 2, without a sign, unlike that of ``elementwise_mod``."""
    rest = node.binary("elementwise_mod", x, powers)
    return node.binary("elementwise_mod", node.binary("elementwise_add", rest, powers), powers)


def _divided(node: Node, x: Variable, powers: Variable) -> Variable:
    """Integers divided by powers of 2 and rounded down: their bits, moved to the right."""
    rest = _remainder(node, x, powers)
    return node.binary("elementwise_floordiv", node.binary("elementwise_sub", x, rest), powers)


@operator("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(node: Node) -> Any:
    """Bits along a new axis are combined and added up; the low ones alone are a remainder."""
    width, own = _width(node), node.value(0).dtype
    low = _low_bits(node)
    if low is not None:
        return node.cast(low, own)
    left, right = (_bits(node, index, width) for index in (0, 1))
    both = node.binary("elementwise_mul", left, right)
    if node.op_type != "BitwiseAnd":
        factor = -1.0 if node.op_type == "BitwiseOr" else -2.0
        sums = node.binary("elementwise_add", left, right)
        both = node.binary("elementwise_add", sums, node.scaled(both, factor))
    values = node.builder.constant(_values(own, width), node.prefix)
    made = node.binary("elementwise_mul", both, values)
    made = node.add("reduce_sum", {"X": made}, dim=[len(made.shape) - 1])
    return node.cast(made, own)


def _values(dtype: VarType, width: int) -> np.ndarray[Any, Any]:
    """What each bit counts; the last one of integers with a sign is negative."""
    values = [1 << bit for bit in range(width)]
    if dtype != VarType.UINT8:
        values[-1] = -values[-1]
    return np.array(values, np.int64)


def _low_bits(node: Node) -> Variable | None:
    """``x & 7`` as the remainder of a division by 8; None for other masks."""
    for index in (0, 1):
        known = node.known(index)
        if node.op_type != "BitwiseAnd" or known is None or known.size != 1:
            continue
        mask = int(known.reshape(-1)[0])
        if 0 <= mask < 1 << 62 and mask & (mask + 1) == 0 and node.value(1 - index).rank:
            count = node.number(mask + 1, VarType.INT64)
            return _remainder(node, _wide(node, 1 - index), count)
    return None


def _bits(node: Node, index: int, width: int) -> Variable:
    """The bits of an input along a new last axis, from the lowest to the highest."""
    x = _wide(node, index)
    x = x if node.value(index).scalar else node.unsqueeze(x, [len(x.shape)])
    powers = np.array([1 << bit for bit in range(min(width, 63))], np.int64)
    moved = _divided(node, x, node.builder.constant(powers, node.prefix))
    made = _remainder(node, moved, node.number(2, VarType.INT64))
    if width < 64:
        return made
    sign = node.cast(node.binary("less_than", x, node.number(0, x.dtype)), x.dtype)
    return node.concat([made, sign], len(made.shape) - 1)


@operator("BitwiseNot")
def invert(node: Node) -> Any:
    """``-x - 1``, and ``255 - x`` for bytes."""
    _width(node)
    own = node.value(0).dtype
    bias = 255.0 if own == VarType.UINT8 else -1.0
    return node.cast(node.scaled(_wide(node, 0), -1.0, bias), own)


@operator("BitShift")
def shift(node: Node) -> Any:
    """Products with powers of 2, and divisions by them."""
    width, own = _width(node), node.value(0).dtype
    right = node.attrs["direction"] == "RIGHT"
    # Counts outside of the type's bits leave copies of the sign, or nothing.
    counts = node.cast(node.var(1), VarType.FP64)
    inside = node.add("logical_and", {
        "X": node.binary("greater_equal", counts, node.number(0, counts.dtype)),
        "Y": node.binary("less_than", counts, node.number(width, counts.dtype)),
    })  # fmt: skip
    inside = node.cast(inside, counts.dtype)
    most = _MOST if right else 0.0
    moved = node.binary("elementwise_mul", node.scaled(counts, bias=-most), inside)
    moved = node.scaled(moved, bias=most)
    base = node.add("fill_any_like", {"X": counts}, value=2.0)
    powers = node.cast(node.binary("elementwise_pow", base, moved), VarType.INT64)
    x = _wide(node, 0)
    if right:
        return node.cast(_divided(node, x, powers), own)
    powers = node.binary("elementwise_mul", powers, node.cast(inside, VarType.INT64))
    made = node.binary("elementwise_mul", x, powers)
    if own == VarType.UINT8:
        made = _remainder(node, made, node.number(1 << width, VarType.INT64))
    return node.cast(made, own)
