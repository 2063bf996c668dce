"""Operators on numbers of 8 bits: ``QLinearConv``, ``MatMulInteger`` and others like them.

Sums of products of integers are exact: real numbers of single precision hold them up to 2**24, and
where weights say that sums may be larger, double precision is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.casts import MICROSOFT, quantized
from dpexec.onnx.loading.operators.convolutions import convolved
from dpexec.onnx.loading.operators.fused import plus
from dpexec.onnx.loading.operators.fused_attention import attention_of
from dpexec.onnx.loading.operators.levels import (
    ROUNDING,
    Sides,
    convolution_of_levels,
    nearest,
    product_of_levels,
    real_of_levels,
    rounded_to_levels,
)
from dpexec.onnx.loading.operators.matrices import multiplied
from dpexec.onnx.loading.operators.unary import rounded
from dpexec.onnx.loading.values import Value

_EXACT = 2**24
_MOST = 255
"""The largest distance of a number of 8 bits from its zero point."""


def _precision(node: Node, weight: int, point: int, axes: tuple[int, ...], length: int) -> VarType:
    """Single precision if no sum of products can be inexact, else double.

    Args:
        node: the node.
        weight: position of the weights.
        point: position of their zero point.
        axes: axes of the weights that are summed over.
        length: products that are summed, for weights that are not known.
    """
    known = node.known(weight)
    if known is None:
        return VarType.FP32 if length * _MOST * _MOST < _EXACT else VarType.FP64
    zero = node.known(point)
    moved = known.astype(np.int64)
    if zero is not None and zero.size == 1:
        moved = moved - int(zero.reshape(-1)[0])
    elif node.input(point) is not None:
        moved = np.abs(moved) + _MOST
    largest = np.abs(moved).sum(axis=axes).max(initial=0) * _MOST
    return VarType.FP32 if largest < _EXACT else VarType.FP64


def _from_zero(
    node: Node, index: int, point: int, dtype: VarType, shape: list[int] | None = None
) -> Variable:
    """A tensor minus its zero point, as real numbers.

    Args:
        node: the node.
        index: position of the tensor.
        point: position of its zero point.
        dtype: the type to have.
        shape: how a zero point with several numbers broadcasts.
    """
    zero, known = node.input(point), node.known(index)
    number = np.zeros((), np.int64) if zero is None else node.known(point)
    if known is not None and number is not None:
        several = shape is not None and number.size > 1
        number = number.reshape(shape) if several else number
        exact = known.astype(np.int64) - number.astype(np.int64)
        return node.builder.constant(exact.astype(to_numpy(dtype)), f"{node.prefix}.from_zero")
    var = node.cast(node.var(index), dtype)
    if zero is None or (number is not None and not number.any()):
        return var
    moved = node.cast(node.var(point), dtype)
    if shape is not None and not zero.scalar and zero.shape != (1,):
        moved = node.reshape(moved, shape)
    return node.binary("elementwise_sub", var, moved)


def _rows(node: Node, index: int, point: int) -> list[int] | None:
    """How zero points of the rows of a left operand broadcast."""
    return [-1, 1] if node.value(point).rank == 1 and node.value(index).rank >= 2 else None


def _matrix_product(node: Node, left: int, left_point: int, right: int, point: int) -> Variable:
    dims = [node.dims(left), node.dims(right)]
    length = dims[0][-1] if isinstance(dims[0][-1], int) else _EXACT
    dtype = _precision(node, right, point, (-2 if len(dims[1]) > 1 else -1,), length)
    shape = _rows(node, left, left_point) if node.input(left_point) is not None else None
    x = _from_zero(node, left, left_point, dtype, shape)
    return multiplied(node, x, _from_zero(node, right, point, dtype), dims)[0]


@operator("MatMulInteger")
def matmul_integer(node: Node) -> Any:
    """The exact product of two tensors minus their zero points."""
    return node.cast(_matrix_product(node, 0, 2, 1, 3), VarType.INT32)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_to_float(node: Node) -> Any:
    """A product of integers times their scales, and a bias."""
    small = product_of_levels(node, Sides((0, 4), -1, (1, 5), -1))
    if small is None:
        made = node.cast(_matrix_product(node, 0, 4, 1, 5), VarType.FP32)
    else:
        made = node.builder.variable(small)
    for index in (2, 3):
        if node.input(index) is not None:
            made = node.binary("elementwise_mul", made, node.var(index))
    return plus(node, made, 6)


@operator("ConvInteger")
def conv_integer(node: Node) -> Any:
    """The exact convolution of two tensors minus their zero points."""
    return node.cast(_convolution(node, 0, 2, 1, 3), VarType.INT32)


def _convolution(node: Node, image: int, point: int, weight: int, weight_point: int) -> Variable:
    shape = node.value(weight).shape
    axes = tuple(range(1, len(shape)))
    dtype = _precision(node, weight, weight_point, axes, int(np.prod(shape[1:])))
    x = _from_zero(node, image, point, dtype)
    lead = [-1] + [1] * (len(shape) - 1)
    filters = _from_zero(node, weight, weight_point, dtype, lead)
    return convolved(node, x, filters, node.dims(image)[2:])


def _scale(node: Node, left: int, right: int, out: int) -> Variable:
    """What exact products are multiplied with: the scales of both sides, by that of the result."""
    scales = (node.cast(node.var(i), VarType.FP32) for i in (left, right))
    both = node.binary("elementwise_mul", *scales)
    if node.input(out) is None:
        return both
    return node.binary("elementwise_div", both, node.cast(node.var(out), VarType.FP32))


@operator("QLinearConv")
def qlinear_conv(node: Node) -> Any:
    """The exact convolution with a bias of integers, then scaled and rounded."""
    small = convolution_of_levels(node, Sides((0, 2), 1, (3, 5), 4, bias=8, out_scale=6))
    if small is not None:
        return small
    made = _convolution(node, 0, 2, 3, 5)
    bias = node.optional(8)
    if bias is not None:
        made = node.add("elementwise_add", {"X": made, "Y": node.cast(bias, made.dtype)}, axis=1)
    made = node.cast(made, VarType.FP32)
    scale = _scale(node, 4, 1, 6)
    if node.value(4).rank and node.value(4).shape != (1,):
        scale = node.reshape(scale, [-1] + [1] * (len(made.shape) - 2))
    made = node.binary("elementwise_mul", made, scale)
    return made if node.input(6) is None else quantized(node, made, 7)


@operator("QLinearMatMul")
def qlinear_matmul(node: Node) -> Any:
    """The exact product, then scaled and rounded."""
    small = product_of_levels(node, Sides((0, 2), 1, (3, 5), 4, out_scale=6))
    if small is not None:
        return small
    made = node.cast(_matrix_product(node, 0, 2, 3, 5), VarType.FP32)
    made = node.binary("elementwise_mul", made, _scale(node, 1, 4, 6))
    return made if node.input(6) is None else quantized(node, made, 7)


# ---- what onnxruntime's tools write


def _real(node: Node, index: int) -> Variable:
    """The real numbers of a tensor that is followed by its scale and zero point."""
    made = real_of_levels(node, index)
    if made is not None:
        return made
    made = _from_zero(node, index, index + 2, VarType.FP32)
    return node.binary("elementwise_mul", made, node.var(index + 1))


def _scaled_down(node: Node, made: Variable, scale: int) -> Any:
    small = rounded_to_levels(node, made, scale, scale + 1)
    if small is not None:
        return small
    return quantized(node, node.binary("elementwise_div", made, node.var(scale)), scale + 1)


@operator("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(node: Node) -> Any:
    """Sums and products of real numbers, and these as 8 bits."""
    op_type = "elementwise_add" if node.op_type == "QLinearAdd" else "elementwise_mul"
    return _scaled_down(node, node.binary(op_type, _real(node, 0), _real(node, 3)), 6)


@operator("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_unary(node: Node) -> Any:
    """Functions of real numbers, and these as 8 bits."""
    x = _real(node, 0)
    if node.op_type == "QLinearSigmoid":
        return _scaled_down(node, node.add("sigmoid", {"X": x}), 3)
    alpha = float(node.attr("alpha", 0.01))
    return _scaled_down(node, node.add("leaky_relu", {"X": x}, alpha=alpha), 3)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_pool(node: Node) -> Any:
    """Means over the pixels of images, as 8 bits."""
    if node.attr("channels_last", 0):
        node.fail("channels_last is not supported")
    axes = list(range(2, node.value(0).rank))
    made = node.add("reduce_mean", {"X": _real(node, 0)}, dim=axes, keep_dim=True)
    return _scaled_down(node, made, 3)


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_pool(node: Node) -> Any:
    """Means of windows, as 8 bits."""
    if node.attr("channels_last", 0):
        node.fail("channels_last is not supported")
    x = _real(node, 0)
    [made] = node.through("AveragePool", [Value(x.name, None, x)])
    return _scaled_down(node, node.builder.variable(made), 3)


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(node: Node) -> Any:
    """Shares of real numbers, as 8 bits."""
    if int(node.attr("opset", 13)) < 13:
        node.fail("shares over several axes, as before opset 13, are not supported")
    made = node.add("softmax", {"X": _real(node, 0)}, axis=node.attr("axis", -1))
    return _scaled_down(node, made, 3)


@operator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(node: Node) -> Any:
    """Real numbers of one tensor or the other, as 8 bits."""
    sides = [Value(x.name, None, x) for x in (_real(node, 1), _real(node, 4))]
    [made] = node.through("Where", [node.value(0), *sides])
    return _scaled_down(node, node.builder.variable(made), 7)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(node: Node) -> Any:
    """Levels of a scale that reaches from the smallest to the largest number, and 0."""
    x, zero = node.var(0), node.number(0.0, VarType.FP32)
    low, high = (
        node.binary(
            f"elementwise_{kind}", node.add(f"reduce_{kind}", {"X": x}, reduce_all=True), zero
        )
        for kind in ("min", "max")
    )
    scale = node.binary("elementwise_sub", high, low)
    scale = node.binary("elementwise_div", scale, node.number(_MOST, VarType.FP32))
    flat = node.cast(node.binary("equal", scale, zero), VarType.FP32)
    unit = node.binary("elementwise_add", scale, flat)
    point = rounded(node, node.scaled(node.binary("elementwise_div", low, unit), -1.0))
    levels = node.scaled(node.binary("elementwise_div", x, unit), 1.0, ROUNDING)
    levels = nearest(node, levels, point)
    levels = node.add("quantize", {"Input": levels}, "Output", Scale=1.0)
    small = node.cast(point, VarType.UINT8)
    return [levels, node.result(scale, True, 1), node.result(small, True, 2)]


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_matmul(node: Node) -> Any:
    """A product of matrices of which the left is rounded to 8 bits first."""
    levels, scale, point = node.through("DynamicQuantizeLinear", [node.value(0)])
    weight, unit, zero, bias = (node.input(i) for i in (1, 2, 3, 4))
    node.inputs = [levels, weight, scale, unit, point, zero, bias]
    return matmul_to_float(node)


@operator("QAttention", domain=MICROSOFT)
def quantized_attention(node: Node) -> Any:
    """Attention whose heads come from a product of integers."""
    made = node.cast(_matrix_product(node, 0, 6, 1, 7), VarType.FP32)
    made = node.binary("elementwise_mul", made, node.var(3))
    made = node.binary("elementwise_mul", made, node.var(4))
    return attention_of(node, plus(node, made, 2), mask=5, past=8)


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(node: Node) -> Any:
    """Joins tensors along an axis, with one scale."""
    parts = [_real(node, i) for i in range(2, len(node.inputs), 3)]
    made = node.concat(parts, node.attr("axis", 0))
    return _scaled_down(node, made, 0)


@operator("QGemm", domain=MICROSOFT)
def qgemm(node: Node) -> Any:
    """The exact product of matrices, then scaled; real numbers, or 8 bits again."""
    if node.attr("transA", 0):
        node.fail("transposed left operands are not supported")
    turned, alpha = bool(node.attr("transB", 0)), float(node.attr("alpha", 1.0))
    sides = Sides((0, 2), 1, (3, 5), 4, bias=6, out_scale=7, factor=alpha)
    small = product_of_levels(node, sides, turned)
    if small is not None:
        return small
    shape = node.value(3).shape
    dtype = _precision(node, 3, 5, (1 if turned else 0,), shape[1 if turned else 0])
    lead = [-1, 1] if turned else None
    weight = _from_zero(node, 3, 5, dtype, lead)
    weight = node.transpose(weight, [1, 0]) if turned else weight
    made = node.add("mul", {"X": _from_zero(node, 0, 2, dtype), "Y": weight})
    bias = node.optional(6)
    if bias is not None:
        made = node.binary("elementwise_add", made, node.cast(bias, dtype))
    scale = node.binary("elementwise_mul", node.var(4), node.var(1))
    made = node.cast(made, VarType.FP32)
    made = node.binary("elementwise_mul", made, node.scaled(scale, alpha))
    return made if node.input(7) is None else _scaled_down(node, made, 7)
