"""``Cast``, ``CastLike``, and 8-bit numbers: ``QuantizeLinear``, ``DequantizeLinear``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import as_var_type, is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.unary import rounded

_LIMITS = {
    VarType.UINT8: (0, 255),
    VarType.INT8: (-128, 127),
    VarType.INT16: (-(2**15), 2**15 - 1),
}
"""The types of quantized numbers."""


@operator("Cast", "CastLike")
def cast(node: Node) -> Any:
    """Real numbers lose what follows the point."""
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
    if node.attr("block_size", 0) or value.rank > 1:
        node.fail("blocks of an axis are not supported")
    if value.scalar or value.shape == (1,):
        return node.var(index)
    shape = [1] * rank
    shape[axis] = value.shape[0]
    return node.reshape(node.var(index), shape)


@operator("QuantizeLinear")
def quantize(node: Node) -> Any:
    """Divided by the scale, rounded, moved by the zero point, within the type's range."""
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
    dtype = VarType.UINT8 if point is None else point.dtype
    if point is None and node.attr("output_dtype", 0):
        dtype = as_var_type(node.attr("output_dtype"), f"the result of {node}")
    if dtype not in _LIMITS:
        node.fail("only 8 and 16 bits with sign, or 8 without, are supported")
    made = rounded(node, x)
    if point is not None:
        moved = _real(node, index, made.dtype, axis, len(x.shape))
        made = node.binary("elementwise_add", made, moved)
    low, high = _LIMITS[dtype]
    if dtype != VarType.UINT8:
        dtype = VarType.INT32  # no operator takes the small ones; outputs are cast when fetched
    return node.cast(node.add("clip", {"X": made}, min=float(low), max=float(high)), dtype)


def _real(node: Node, index: int, dtype: VarType, axis: int, rank: int) -> Variable:
    """Integers as real numbers; programs cast none of 8 bits with sign that only a run tells."""
    known = node.known(index)
    if known is None:
        return node.cast(_along(node, index, axis, rank) if index else node.var(0), dtype)
    if index and known.size > 1:
        known = known.reshape([-1 if a == axis else 1 for a in range(rank)])
    return node.builder.constant(known.astype(to_numpy(dtype)), f"{node.prefix}.real")


@operator("DequantizeLinear")
def dequantize(node: Node) -> Any:
    """Moved by the zero point, and multiplied by the scale."""
    rank, axis = node.value(0).rank, node.axis(1)
    scale = _along(node, 1, axis, rank)
    if not is_float(scale.dtype):
        node.fail("scales must be real numbers")
    x = _real(node, 0, scale.dtype, axis, rank)
    if node.input(2) is not None:
        x = node.binary("elementwise_sub", x, _real(node, 2, scale.dtype, axis, rank))
    return node.binary("elementwise_mul", x, scale)
