"""What onnxruntime's optimizer makes of several nodes: ``BiasGelu``, ``FusedConv`` and others."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.casts import MICROSOFT
from dpexec.onnx.loading.operators.convolutions import convolved, with_channels
from dpexec.onnx.loading.operators.matrices import multiplied
from dpexec.onnx.loading.values import Value

_LARGEST_EPSILON = 1e-3
_ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}


def plus(node: Node, var: Variable, index: int) -> Variable:
    """A variable plus an input, if that is given."""
    more = node.optional(index)
    return var if more is None else node.binary("elementwise_add", var, more)


@operator("Gelu", "BiasGelu", "FastGelu", domain=MICROSOFT)
def gelu(node: Node) -> Any:
    """Of the sum with a bias; `FastGelu` is the approximation by `tanh`."""
    x = plus(node, node.var(0), 1)
    return node.add("gelu", {"X": x}, approximate=node.op_type == "FastGelu")


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node) -> Any:
    """``x sigmoid(alpha x)``."""
    return node.add("swish", {"X": node.var(0)}, beta=float(node.attr("alpha", 1.702)))


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node: Node) -> Any:
    """A product of matrices that may be transposed, times `alpha`."""
    sides, dims = [node.var(0), node.var(1)], [node.dims(0), node.dims(1)]
    for k, name in enumerate("AB"):
        order = list(range(len(dims[k])))
        if node.attr(f"transBatch{name}", 0) and len(order) > 2:
            order = [*order[1:-1], 0, order[-1]]
        if node.attr(f"trans{name}", 0) and len(order) > 1:
            order[-2:] = order[:-3:-1]
        if order != sorted(order):
            sides[k] = node.transpose(sides[k], order)
            dims[k] = [dims[k][axis] for axis in order]
    made, scalar = multiplied(node, sides[0], sides[1], dims)
    return node.result(node.scaled(made, node.attr("alpha", 1.0)), scalar)


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(node: Node) -> Any:
    """A convolution, its bias, another tensor and an activation."""
    made = convolved(node, node.var(0), node.var(1), node.dims(0)[2:])
    made = plus(node, with_channels(node, made, node.optional(2)), 3)
    return _activated(node, made, node.attr("activation_params", []))


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node) -> Any:
    """``Gemm`` and an activation."""
    [made] = node.through("Gemm", node.inputs)
    slope = [node.attr("activation_alpha", 0.01)]
    return _activated(node, node.builder.variable(made), slope)


def _activated(node: Node, x: Variable, numbers: list[float]) -> Variable:
    """A tensor after the activation that a node has in an attribute."""
    kind = node.attr("activation", "")
    if not kind:
        return x
    if kind in _ACTIVATIONS:
        return node.add(_ACTIVATIONS[kind], {"X": x})
    if kind == "LeakyRelu":
        return node.add("leaky_relu", {"X": x}, alpha=float(numbers[0]))
    if kind == "Clip":
        return node.add("clip", {"X": x}, min=float(numbers[0]), max=float(numbers[1]))
    if kind == "HardSigmoid":
        slope, offset = map(float, numbers)
        return node.add("hard_sigmoid", {"X": x}, slope=slope, offset=offset)
    node.fail(f"the activation {kind} is not supported")


# ---- normalizations


def normalized(
    node: Node, x: Variable, scale: int, bias: int, epsilon: float, axis: int = -1
) -> Variable:
    """Mean 0 and deviation 1 along the axes from one on, then scaled and moved by inputs."""
    value = Value(x.name, None, x)
    inputs = [value, node.input(scale), node.input(bias)]
    [made] = node.through("LayerNormalization", inputs, axis=axis, epsilon=epsilon)
    return node.builder.variable(made)


def by_root_mean_square(
    node: Node, x: Variable, scale: int, epsilon: float
) -> tuple[Variable, Variable]:
    """A tensor divided by the root of the mean of its squares along the last axis, and scaled.

    Returns:
        The tensor, and what it was multiplied with.
    """
    along: dict[str, Any] = {"dim": [len(x.shape) - 1], "keep_dim": True}
    mean = node.add("reduce_mean", {"X": node.add("square", {"X": x})}, **along)
    inverse = node.add("rsqrt", {"X": node.scaled(mean, bias=epsilon)})
    made = node.binary("elementwise_mul", x, inverse)
    return node.binary("elementwise_mul", made, node.var(scale)), inverse


@operator("SimplifiedLayerNormalization")
def root_mean_square(node: Node) -> Any:
    """`RMSNormalization` over the last axis, as onnxruntime writes it."""
    if node.axis(-1) != node.value(0).rank - 1:
        node.fail("it is supported over the last axis only")
    return list(by_root_mean_square(node, node.var(0), 1, node.attr("epsilon", 1e-5)))


@operator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(node: Node) -> Any:
    """The normalization of a sum, and the sum."""
    simple = node.op_type == "SkipSimplifiedLayerNormalization"
    epsilon = node.attr("epsilon", 1e-12)
    total = node.binary("elementwise_add", node.var(0), node.var(1))
    total = plus(node, total, 3 if simple else 4)
    if any(node.outputs[1:3]):
        node.fail("its mean and deviation are not made")
    if simple:
        made, _ = by_root_mean_square(node, total, 2, epsilon)
    else:
        made = normalized(node, total, 2, 3, epsilon)
    return [made, None, None, total][: len(node.outputs)]


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(node: Node) -> Any:
    """The normalized sum of embeddings of words, positions and segments; lengths from the mask."""
    ids = node.cast(node.var(0), VarType.INT64)
    total = node.add("lookup_table_v2", {"W": node.var(2), "Ids": ids})
    if node.input(1) is not None:
        segments = node.cast(node.var(1), VarType.INT64)
        more = node.add("lookup_table_v2", {"W": node.var(4), "Ids": segments})
        total = node.binary("elementwise_add", total, more)
    places = node.optional(8)
    if places is None:
        places = counted(node, ids, 1)
    more = node.add("lookup_table_v2", {"W": node.var(3), "Ids": node.cast(places, VarType.INT64)})
    total = node.binary("elementwise_add", total, more)
    made = normalized(node, total, 5, 6, node.attr("epsilon", 1e-12))
    lengths = None
    if len(node.outputs) > 1 and node.outputs[1]:
        mask = node.optional(7)
        if mask is None:
            lengths = node.add("fill_zeros_like", {"X": node.slice(ids, 1, 0, 1)})
        else:
            lengths = node.add("reduce_sum", {"X": node.cast(mask, VarType.INT64)}, dim=[1])
        lengths = node.cast(node.reshape(lengths, [-1]), VarType.INT32)
    return [made, lengths, total][: max(len(node.outputs), 1)]


def counted(node: Node, like: Variable, axis: int) -> Variable:
    """0, 1, 2, ... along an axis, in the shape of a variable (int64)."""
    ones = node.add("fill_any_like", {"X": like}, value=1.0, dtype=int(VarType.INT64))
    return node.add("cumsum", {"X": ones}, axis=axis, exclusive=True)


# ---- weights of a few bits


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_of_few_bits(node: Node) -> Any:
    """The product with weights of 2, 4 or 8 bits that have a scale for each block."""
    packed, scales = node.known(1), node.known(2)
    if packed is None or scales is None or (node.input(3) is not None and node.known(3) is None):
        node.fail("its weights, scales and zero points must be known when the model is loaded")
    if node.input(4) is not None:
        node.fail("columns in another order (g_idx) are not supported")
    rows, length = int(node.attr("N")), int(node.attr("K"))
    bits, block = int(node.attr("bits", 4)), int(node.attr("block_size"))
    blocks = -(-length // block)
    weights = _unpacked(packed.reshape(rows, blocks, -1), bits, block).astype(np.float64)
    zeros: Any = float(2 ** (bits - 1))
    given = node.known(3)
    if given is not None and given.dtype == np.uint8:
        zeros = _unpacked(given.reshape(rows, -1), bits, blocks)[..., None]
    elif given is not None:
        zeros = given.reshape(rows, blocks, 1)
    made = (weights - zeros) * scales.astype(np.float64).reshape(rows, blocks, 1)
    matrix = made.reshape(rows, -1)[:, :length].T
    x = node.var(0)
    constant = node.builder.constant(matrix.astype(to_numpy(x.dtype)), f"{node.prefix}.weights")
    columns = len(x.shape) - 1
    return plus(node, node.add("mul", {"X": x, "Y": constant}, x_num_col_dims=columns), 5)


def _unpacked(data: np.ndarray[Any, Any], bits: int, count: int) -> np.ndarray[Any, Any]:
    """The integers along the last axis of bytes that hold several, the lowest bits first."""
    each = 8 // bits
    parts = [(data >> (bits * k)) & (2**bits - 1) for k in range(each)]
    return np.stack(parts, -1).reshape(*data.shape[:-1], -1)[..., :count]
