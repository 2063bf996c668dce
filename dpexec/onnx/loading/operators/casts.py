"""``Cast``, ``CastLike``, and 8-bit numbers: ``QuantizeLinear``, ``DequantizeLinear``."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import as_element, as_var_type, is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.levels import real_of_levels, rounded_to_levels
from dpexec.onnx.loading.operators.unary import rounded

MICROSOFT = "com.microsoft"
_LIMITS: dict[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT16: (0, 2**16 - 1),
    TensorProto.INT16: (-(2**15), 2**15 - 1),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT4: (-8, 7),
}
"""The types of quantized numbers."""


@operator("Cast", "CastLike")
def cast(node: Node) -> Any:
    """Real numbers that become integers are truncated."""
    if node.op_type == "CastLike":
        dtype = node.value(1).dtype
    else:
        dtype = as_var_type(node.attr("to"), f"the result of {node}")
    if node.value(0).dtype == dtype:
        return node.value(0)
    return node.cast(node.var(0), dtype)


def _along(node: Node, index: int, axis: int, rank: int) -> Variable:
    """Scales or zero points of an axis, which broadcast with the tensor."""
    value = node.value(index)
    if node.attr("block_size", 0):
        return node.builder.constant(_blocks(node, index, axis), f"{node.prefix}.blocks")
    if value.rank > 1:
        node.fail("its scales are no numbers of an axis")
    if value.scalar or value.shape == (1,):
        return node.var(index)
    shape = [1] * rank
    shape[axis] = value.shape[0]
    return node.reshape(node.var(index), shape)


def _blocks(node: Node, index: int, axis: int) -> np.ndarray[Any, Any]:
    """Scales or zero points of blocks of an axis, repeated for all of its elements."""
    known, size = node.constant(index, "numbers of blocks"), node.dims(0)[axis]
    if known is None or not isinstance(size, int):
        node.fail("the size of the axis of blocks must be known when the model is loaded")
    return np.repeat(known, node.attr("block_size"), axis).take(range(size), axis)


@operator("QuantizeLinear")
@operator("QuantizeLinear", domain=MICROSOFT)
def quantize(node: Node) -> Any:
    """Divides by the scale, rounds, adds the zero point, and limits to the type's range."""
    small = None if node.attr("block_size", 0) else rounded_to_levels(node, node.var(0), 1, 2)
    if small is not None:
        return small
    rank, axis = node.value(0).rank, node.axis(1)
    made = node.binary("elementwise_div", node.var(0), _along(node, 1, axis, rank))
    return quantized(node, made, 2, axis)


def quantized(node: Node, x: Variable, index: int, axis: int = 1) -> Variable:
    """Numbers that a scale has divided already: rounded, moved by the zero point, and limited.

    Args:
        node: the node.
        x: the numbers.
        index: position of the zero point; its type is that of the result.
        axis: the axis of zero points that are several numbers.
    """
    point = node.input(index)
    element = node.attr("output_dtype", 0) or TensorProto.UINT8
    if point is not None:
        element = point.element or as_element(point.dtype)
    if element not in _LIMITS:
        node.fail("only integers of 4, 8 and 16 bits are supported")
    low, high = _LIMITS[element]
    # No operator takes the small types with sign; outputs are cast when they are fetched.
    dtype = VarType.UINT8 if element == TensorProto.UINT8 else VarType.INT32
    made = rounded(node, x)
    if point is not None:
        moved = _real(node, index, made.dtype, axis, len(x.shape))
        made = node.binary("elementwise_add", made, moved)
    return node.cast(node.add("clip", {"X": made}, min=float(low), max=float(high)), dtype)


def _real(node: Node, index: int, dtype: VarType, axis: int, rank: int) -> Variable:
    """Integers as real numbers; programs cast none of 8 bits with sign that only a run tells."""
    known = node.known(index)
    if known is None:
        return node.cast(_along(node, index, axis, rank) if index else node.var(0), dtype)
    if index and node.attr("block_size", 0):
        known = _blocks(node, index, axis)
    elif index and known.size > 1:
        known = known.reshape([-1 if a == axis else 1 for a in range(rank)])
    return node.builder.constant(known.astype(to_numpy(dtype)), f"{node.prefix}.real")


@operator("DequantizeLinear")
@operator("DequantizeLinear", domain=MICROSOFT)
def dequantize(node: Node) -> Any:
    """Subtracts the zero point, and multiplies by the scale."""
    made = None if node.attr("block_size", 0) else real_of_levels(node, 0)
    if made is not None:
        return made
    rank, axis = node.value(0).rank, node.axis(1)
    scale = _along(node, 1, axis, rank)
    if not is_float(scale.dtype):
        node.fail("scales must be real numbers")
    x = _real(node, 0, scale.dtype, axis, rank)
    if node.input(2) is not None:
        x = node.binary("elementwise_sub", x, _real(node, 2, scale.dtype, axis, rank))
    return node.binary("elementwise_mul", x, scale)
