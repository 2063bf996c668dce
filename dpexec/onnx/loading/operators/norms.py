"""Normalizations over batches, channels, groups and the last dimensions; ``Dropout``."""

from __future__ import annotations

import math
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

_LARGEST_EPSILON = 1e-3
"""That fluid's normalizations take."""


@operator("BatchNormalization")
def batch_norm(node: Node) -> Any:
    """With the running statistics, unless the program or the node is for training."""
    training = bool(node.attr("training_mode", 0)) or not node.graph.is_test
    x, scale, bias, mean, variance = (node.var(i) for i in range(5))
    own, epsilon = x.dtype, node.attr("epsilon", 1e-5)
    if epsilon > _LARGEST_EPSILON:
        computed = _by_batch if training else _by_statistics
        return computed(node, [x, scale, bias, mean, variance], epsilon)
    inputs = {"X": x, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    attrs = {
        "epsilon": epsilon,
        "momentum": node.attr("momentum", 0.9),
        "is_test": not training,
        "use_global_stats": not training,
    }
    running = {"MeanOut": mean, "VarianceOut": variance}
    kept = {n: v for n, v in running.items() if v.persistable}
    made = node.builder.add("batch_norm", inputs, attrs, prefix=node.prefix, outputs=kept)
    results = [node.cast(made["Y"], own), made["MeanOut"], made["VarianceOut"]]
    return results[: max(len(node.outputs), 1)] if training else results[0]


def _by_statistics(node: Node, inputs: list[Variable], epsilon: float) -> Variable:
    x, *others = inputs
    scale, bias, mean, variance = (_per_channel(node, var, len(x.shape)) for var in others)
    deviation = node.add("sqrt", {"X": node.scaled(variance, bias=epsilon)})
    factor = node.binary("elementwise_div", scale, deviation)
    moved = node.binary("elementwise_sub", x, mean)
    return node.binary("elementwise_add", node.binary("elementwise_mul", moved, factor), bias)


def _by_batch(node: Node, inputs: list[Variable], epsilon: float) -> list[Variable]:
    """With the statistics of the batch, which move the running ones."""
    x, scale, bias, *running = inputs
    rank, axes = len(x.shape), [a for a in range(len(x.shape)) if a != 1]
    mean = node.add("reduce_mean", {"X": x}, dim=axes, keep_dim=True)
    moved = node.binary("elementwise_sub", x, mean)
    squares = node.add("square", {"X": moved})
    variance = node.add("reduce_mean", {"X": squares}, dim=axes, keep_dim=True)
    deviation = node.add("sqrt", {"X": node.scaled(variance, bias=epsilon)})
    made = node.binary("elementwise_div", moved, deviation)
    made = node.binary("elementwise_mul", made, _per_channel(node, scale, rank))
    made = node.binary("elementwise_add", made, _per_channel(node, bias, rank))
    results, momentum = [made], node.attr("momentum", 0.9)
    for old, new in zip(running, (mean, variance), strict=True):
        share = node.cast(node.scaled(node.reshape(new, [-1]), 1 - momentum), old.dtype)
        total = node.binary("elementwise_add", node.scaled(old, momentum), share)
        if old.persistable:
            outputs = {"Out": old}
            node.builder.add("assign", {"X": total}, prefix=node.prefix, outputs=outputs)
            total = old
        results.append(total)
    return results[: max(len(node.outputs), 1)]


def _per_channel(node: Node, var: Variable, rank: int) -> Variable:
    return node.reshape(var, [-1, *[1] * (rank - 2)])


def _standardized(
    node: Node, x: Variable, axes: list[int], epsilon: float
) -> tuple[Variable, Variable, Variable]:
    """Over some axes, mean 0 and deviation 1; and the mean and deviation that it had."""
    attrs: dict[str, Any] = {"dim": axes, "keep_dim": True, "reduce_all": len(axes) == len(x.shape)}
    mean = node.add("reduce_mean", {"X": x}, **attrs)
    moved = node.binary("elementwise_sub", x, mean)
    variance = node.add("reduce_mean", {"X": node.add("square", {"X": moved})}, **attrs)
    deviation = node.add("sqrt", {"X": node.scaled(variance, bias=epsilon)})
    return node.binary("elementwise_div", moved, deviation), mean, deviation


@operator("InstanceNormalization")
def instance_norm(node: Node) -> Any:
    """Normalizes every channel of every sample."""
    inputs = {"X": node.var(0), "Scale": node.var(1), "Bias": node.var(2)}
    rank, epsilon = node.value(0).rank, node.attr("epsilon", 1e-5)
    if epsilon > _LARGEST_EPSILON:
        made, _, _ = _standardized(node, node.var(0), list(range(2, rank)), epsilon)
        made = node.binary("elementwise_mul", made, _per_channel(node, node.var(1), rank))
        return node.binary("elementwise_add", made, _per_channel(node, node.var(2), rank))
    return node.add("instance_norm", inputs, "Y", epsilon=node.attr("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_norm(node: Node) -> Any:
    """Normalizes over the dimensions from an axis on."""
    axis, x, dims = node.axis(-1), node.var(0), node.dims(0)
    if axis == 0 or node.attr("epsilon", 1e-5) > _LARGEST_EPSILON:
        return _layer_norm_by_hand(node, axis)
    sizes = [size for size in dims[axis:] if isinstance(size, int)]
    inputs: dict[str, Any] = {"X": x}
    plain = len(sizes) == len(dims) - axis
    for index, slot in ((1, "Scale"), (2, "Bias")):
        given = node.input(index)
        fits = given is not None and plain and math.prod(given.shape) == math.prod(sizes)
        if fits and (index == 1 or "Scale" in inputs or node.input(1) is None):
            inputs[slot] = node.reshape(node.var(index), [math.prod(sizes)])
    made = node.builder.add(
        "layer_norm",
        inputs,
        {"begin_norm_axis": axis, "epsilon": node.attr("epsilon", 1e-5)},
        prefix=node.prefix,
    )
    y = made["Y"]
    if node.input(1) is not None and "Scale" not in inputs:
        y = node.binary("elementwise_mul", y, node.var(1))
    if node.input(2) is not None and "Bias" not in inputs:
        y = node.binary("elementwise_add", y, node.var(2))
    return [y, *_statistics(node, made, axis)]


def _layer_norm_by_hand(node: Node, axis: int) -> Any:
    axes = list(range(axis, node.value(0).rank))
    made, mean, deviation = _standardized(node, node.var(0), axes, node.attr("epsilon", 1e-5))
    for index, op_type in ((1, "elementwise_mul"), (2, "elementwise_add")):
        if node.input(index) is not None:
            made = node.binary(op_type, made, node.var(index))
    if not any(node.outputs[1:]):
        return made
    return [made, mean, node.add("reciprocal", {"X": deviation})]


def _statistics(node: Node, made: dict[str, Any], axis: int) -> list[Variable]:
    """The mean and the reciprocal deviation, if somebody wants them."""
    if not any(node.outputs[1:]):
        return []
    dims = [*node.dims(0)[:axis], *[1] * (node.value(0).rank - axis)]
    mean = node.reshape(made["Mean"], dims, node.dims(0)[:axis])
    shifted = node.scaled(made["Variance"], bias=node.attr("epsilon", 1e-5))
    inverse = node.add("rsqrt", {"X": shifted})
    return [mean, node.reshape(inverse, dims, node.dims(0)[:axis])]


@operator("GroupNormalization")
def group_norm(node: Node) -> Any:
    """Scales and biases are those of groups before version 21, those of channels since."""
    x, dims, groups = node.var(0), node.dims(0), node.attr("num_groups")
    rank, channels = len(dims), x.shape[1]
    if rank != 4:
        x = node.reshape(x, [dims[0], channels, -1, 1], dims)
    scale, bias = node.var(1), node.var(2)
    if node.version < 21 and groups != channels:
        scale, bias = (_for_channels(node, v, channels // groups) for v in (scale, bias))
    inputs = {"X": x, "Scale": scale, "Bias": bias}
    attrs = {"groups": groups, "epsilon": node.attr("epsilon", 1e-5)}
    made = node.add("group_norm", inputs, "Y", **attrs)
    return made if rank == 4 else node.reshape(made, dims, dims)


def _for_channels(node: Node, var: Variable, count: int) -> Variable:
    columns = node.reshape(var, [var.shape[0], 1])
    repeated = node.add("expand", {"X": columns}, expand_times=[1, count])
    return node.reshape(repeated, [var.shape[0] * count])


@operator("LRN")
def local_response(node: Node) -> Any:
    """ONNX divides ``alpha`` by the number of channels of a window, fluid does not."""
    size = node.attr("size")
    return node.add(
        "lrn",
        {"X": node.var(0)},
        n=size,
        k=node.attr("bias", 1.0),
        alpha=node.attr("alpha", 1e-4) / size,
        beta=node.attr("beta", 0.75),
    )


@operator("LpNormalization")
def lp_normalization(node: Node) -> Any:
    """Divides by the norm along an axis; 0 where that is 0."""
    x, axis = node.var(0), node.axis(-1)
    attrs: dict[str, Any] = {"dim": [axis], "keep_dim": True}
    if node.attr("p", 2) == 1:
        norm = node.add("reduce_sum", {"X": node.add("abs", {"X": x})}, **attrs)
    else:
        total = node.add("reduce_sum", {"X": node.add("square", {"X": x})}, **attrs)
        norm = node.add("sqrt", {"X": total})
    zero = node.cast(node.binary("equal", norm, node.number(0, norm.dtype)), norm.dtype)
    return node.binary("elementwise_div", x, node.binary("elementwise_add", norm, zero))


@operator("Dropout")
def dropout(node: Node) -> Any:
    """Nothing is dropped in a program for tests, unless the node says it is in training."""
    ratio = node.attr("ratio", 0.5)
    if node.input(1) is not None:
        found = node.constant(1, "ratio")
        assert found is not None
        ratio = float(found.reshape(-1)[0])
    mode = node.input(2)
    asked = mode is not None and bool(node.constant(2, "training_mode"))
    if (node.graph.is_test and not asked) or ratio == 0:
        return [node.value(0), _all_kept(node)]
    attrs = {"dropout_prob": ratio, "dropout_implementation": "upscale_in_train"}
    made = node.builder.add("dropout", {"X": node.var(0)}, attrs, prefix=node.prefix)
    return [made["Out"], node.cast(made["Mask"], VarType.BOOL)][: len(node.outputs)]


def _all_kept(node: Node) -> Variable | None:
    if len(node.outputs) < 2 or not node.outputs[1]:
        return None
    return node.add("fill_any_like", {"X": node.var(0)}, value=1.0, dtype=int(VarType.BOOL))
