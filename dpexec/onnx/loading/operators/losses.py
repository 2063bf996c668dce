"""``SoftmaxCrossEntropyLoss``; ONNX's own function makes ``NegativeLogLikelihoodLoss``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.activations import log_softmax


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
