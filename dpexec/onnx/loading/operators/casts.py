"""``Cast``, ``CastLike``, and 8-bit numbers: ``QuantizeLinear``, ``DequantizeLinear``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import as_var_type, is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.unary import rounded


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
    point = node.input(2)
    dtype = VarType.UINT8 if point is None else point.dtype
    if point is None and node.attr("output_dtype", 0):
        dtype = as_var_type(node.attr("output_dtype"), f"the result of {node}")
    limits = {
        VarType.UINT8: (0, 255),
        VarType.INT8: (-128, 127),
        VarType.INT16: (-(2**15), 2**15 - 1),
    }
    if dtype not in limits:
        node.fail("only 8 and 16 bits with sign, or 8 without, are supported")
    scale = _along(node, 1, axis, rank)
    made = rounded(node, node.binary("elementwise_div", node.var(0), scale))
    if point is not None:
        made = node.binary(
            "elementwise_add", made, node.cast(_along(node, 2, axis, rank), made.dtype)
        )
    low, high = limits[dtype]
    if dtype != VarType.UINT8:
        dtype = VarType.INT32  # no operator takes the small ones; outputs are cast when fetched
    return node.cast(node.add("clip", {"X": made}, min=float(low), max=float(high)), dtype)


@operator("DequantizeLinear")
def dequantize(node: Node) -> Any:
    """Moved by the zero point, and multiplied by the scale."""
    rank, axis = node.value(0).rank, node.axis(1)
    scale = _along(node, 1, axis, rank)
    if not is_float(scale.dtype):
        node.fail("scales must be real numbers")
    x = node.cast(node.var(0), scale.dtype)
    if node.input(2) is not None:
        x = node.binary("elementwise_sub", x, node.cast(_along(node, 2, axis, rank), scale.dtype))
    return node.binary("elementwise_mul", x, scale)
