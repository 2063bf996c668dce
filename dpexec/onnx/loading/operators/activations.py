"""Activations, ``Softmax`` and the like, and the loss of ``Softmax``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node


@operator("Relu")
def relu(node: Node) -> Any:
    """Works for integers, too."""
    x = node.var(0)
    if is_float(x.dtype):
        return node.add("relu", {"X": x})
    return node.binary("elementwise_max", x, node.number(0, x.dtype))


@operator("LeakyRelu")
def leaky_relu(node: Node) -> Any:
    """The slope is 0.01 by default."""
    alpha = node.attr("alpha", 0.01)
    if 0 <= alpha <= 1:
        return node.add("leaky_relu", {"X": node.var(0)}, alpha=alpha)
    x = node.var(0)
    above = node.add("relu", {"X": x})
    below = node.scaled(node.add("relu", {"X": node.scaled(x, -1.0)}), -alpha)
    return node.binary("elementwise_add", above, below)


@operator("PRelu")
def prelu(node: Node) -> Any:
    """A slope for all elements, for each channel, or for each element."""
    x, slope = node.var(0), node.var(1)
    above = node.add("relu", {"X": x})
    below = node.binary("elementwise_sub", x, above)
    return node.binary("elementwise_add", above, node.binary("elementwise_mul", below, slope))


@operator("Elu")
def elu(node: Node) -> Any:
    """``alpha (exp(x) - 1)`` below 0."""
    return node.add("elu", {"X": node.var(0)}, alpha=node.attr("alpha", 1.0))


@operator("Celu")
def celu(node: Node) -> Any:
    """``alpha (exp(x / alpha) - 1)`` below 0."""
    alpha = node.attr("alpha", 1.0)
    grown = node.add("elu", {"X": node.scaled(node.var(0), 1 / alpha)}, alpha=1.0)
    return node.scaled(grown, alpha)


@operator("Selu")
def selu(node: Node) -> Any:
    """The scaled exponential linear unit."""
    return node.add(
        "selu",
        {"X": node.var(0)},
        alpha=node.attr("alpha", 1.6732632),
        scale=node.attr("gamma", 1.050701),
    )


@operator("Softplus")
def softplus(node: Node) -> Any:
    """``log(1 + exp(x))``."""
    return node.add("softplus", {"X": node.var(0)})


@operator("HardSigmoid")
def hard_sigmoid(node: Node) -> Any:
    """``alpha x + beta`` between 0 and 1."""
    return node.add(
        "hard_sigmoid",
        {"X": node.var(0)},
        slope=node.attr("alpha", 0.2),
        offset=node.attr("beta", 0.5),
    )


@operator("HardSwish")
def hard_swish(node: Node) -> Any:
    """``x max(0, min(1, x / 6 + 1 / 2))``."""
    return node.add("hard_swish", {"X": node.var(0)})


@operator("Gelu")
def gelu(node: Node) -> Any:
    """Exact, or the approximation by ``tanh``."""
    approximate = node.attr("approximate", "none") == "tanh"
    return node.add("gelu", {"X": node.var(0)}, approximate=approximate)


@operator("Mish")
def mish(node: Node) -> Any:
    """``x tanh(softplus(x))``."""
    x = node.var(0)
    gate = node.add("tanh", {"X": node.add("softplus", {"X": x})})
    return node.binary("elementwise_mul", x, gate)


@operator("Swish")
def swish(node: Node) -> Any:
    """``x sigmoid(alpha x)``."""
    return node.add("swish", {"X": node.var(0)}, beta=node.attr("alpha", 1.0))


@operator("ThresholdedRelu")
def thresholded_relu(node: Node) -> Any:
    """0 up to ``alpha``."""
    return node.add("thresholded_relu", {"X": node.var(0)}, threshold=node.attr("alpha", 1.0))


@operator("Shrink")
def shrink(node: Node) -> Any:
    """0 in the middle; ``bias`` closer to 0 outside."""
    x, limit, bias = node.var(0), node.attr("lambd", 0.5), node.attr("bias", 0.0)
    above = node.cast(node.binary("greater_than", x, node.number(limit, x.dtype)), x.dtype)
    below = node.cast(node.binary("less_than", x, node.number(-limit, x.dtype)), x.dtype)
    lowered = node.binary("elementwise_mul", above, node.scaled(x, bias=-bias))
    raised = node.binary("elementwise_mul", below, node.scaled(x, bias=bias))
    return node.binary("elementwise_add", lowered, raised)


@operator("Clip")
def clip(node: Node) -> Any:
    """Limits are attributes before version 11, inputs since."""
    x = node.var(0)
    limits = [node.attr(name) for name in ("min", "max")]
    for index in (1, 2):
        if node.input(index) is not None:
            limits[index - 1] = node.single(index)
            if limits[index - 1] is None:
                limits[index - 1] = node.var(index)
    numbers = [isinstance(limit, int | float) for limit in limits]
    if all(numbers) and is_float(x.dtype) and limits[0] < limits[1]:
        return node.add("clip", {"X": x}, min=float(limits[0]), max=float(limits[1]))
    for op_type, limit in (("elementwise_max", limits[0]), ("elementwise_min", limits[1])):
        if limit is not None:
            number = isinstance(limit, int | float)
            x = node.binary(op_type, x, node.number(limit, x.dtype) if number else limit)
    return x if any(limit is not None for limit in limits) else node.value(0)


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(node: Node) -> Any:
    """Over one axis since version 13, over all from an axis on before."""
    x, dims = node.var(0), node.dims(0)
    rank = len(dims)
    if node.version >= 13:
        return _normalized(node, x, node.axis(-1))
    axis = node.axis(1)
    if axis == rank - 1:
        return _normalized(node, x, axis)
    flat = node.add("flatten2", {"X": x}, axis=axis)
    return node.reshape(_normalized(node, flat, 1), dims)


def _normalized(node: Node, x: Any, axis: int) -> Any:
    if node.op_type == "Softmax":
        return node.add("softmax", {"X": x}, axis=axis)
    if node.op_type == "Hardmax":
        return _hardmax(node, x, axis)
    return log_softmax(node, x, axis)


def log_softmax(node: Node, x: Variable, axis: int) -> Variable:
    """Logarithms of shares along an axis, finite where the shares are 0."""
    largest = node.add("reduce_max", {"X": x}, dim=[axis], keep_dim=True)
    below = node.binary("elementwise_sub", x, largest)
    total = node.add("reduce_sum", {"X": node.add("exp", {"X": below})}, dim=[axis], keep_dim=True)
    return node.binary("elementwise_sub", below, node.add("log", {"X": total}))


def _hardmax(node: Node, x: Any, axis: int) -> Any:
    rank, depth = len(x.shape), x.shape[axis]
    if depth < 0:
        node.fail("the size of its axis must be known")
    first = node.add("arg_max", {"X": x}, axis=axis)
    hot = node.cast(node.add("one_hot_v2", {"X": first}, depth=depth), x.dtype)
    order = list(range(rank - 1))
    return node.transpose(hot, [*order[:axis], rank - 1, *order[axis:]])


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(node: Node) -> Any:
    """Of classes along axis 1; labels that are ignored count neither as losses nor in the mean."""
    x, classes, rank = node.var(0), node.dims(0)[1], node.value(0).rank
    if isinstance(classes, OpenDim):
        node.fail("the number of classes must be known when the model is loaded")
    order = [0, *range(2, rank), 1]
    back = [0, rank - 1, *range(1, rank - 1)]
    logs = log_softmax(node, node.transpose(x, order), rank - 1)
    shares = _shares(node, node.cast(node.var(1), VarType.INT64), classes, x.dtype)
    last: dict[str, Any] = {"dim": [rank - 1], "keep_dim": False, "reduce_all": False}
    products = node.binary("elementwise_mul", shares, logs)
    losses = node.scaled(node.add("reduce_sum", {"X": products}, **last), -1.0)
    kind = node.attr("reduction", "mean")
    if kind != "none":
        total = node.add("reduce_sum", {"X": losses}, dim=[0], keep_dim=False, reduce_all=True)
        if kind == "mean":
            count = node.add("reduce_sum", {"X": shares}, dim=[0], keep_dim=False, reduce_all=True)
            total = node.binary("elementwise_div", total, count)
        losses = total
    made = [node.result(losses, kind != "none")]
    return [*made, node.transpose(logs, back)] if any(node.outputs[1:]) else made


def _shares(node: Node, labels: Variable, classes: int, dtype: VarType) -> Variable:
    """The weight of each class for each label: that of its own class, and 0 for others."""
    ignored = node.attr("ignore_index")
    if ignored is not None and 0 <= ignored < classes:
        kept = node.cast(node.binary("not_equal", labels, node.number(ignored, VarType.INT64)),
                         VarType.INT64)  # fmt: skip
        moved = node.binary("elementwise_mul", node.scaled(labels, bias=1.0), kept)
        labels = node.scaled(moved, bias=-1.0)  # of ignored ones, -1, which is no class
    hot = node.cast(
        node.add("one_hot_v2", {"X": labels}, depth=classes, allow_out_of_range=True), dtype
    )
    weights = node.optional(2)
    return hot if weights is None else node.binary("elementwise_mul", hot, weights)
