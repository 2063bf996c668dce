"""Normalizations: over batches, layers, instances, groups, channels, lengths, spectra."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.activations import activated
from dpexec.onnx.exporting.mappings.conv2d import back, first
from dpexec.onnx.exporting.refusals import need


def _has_last(c: Call, name: str) -> bool:
    return c.attr(name) in ("NHWC", "NDHWC") and c.rank("X") > 2


@exports("batch_norm", "fused_batch_norm_act", "inplace_abn", without="statistics of the batch")
def batch_norm(c: Call) -> None:
    """``BatchNormalization`` with the statistics that training gathered."""
    need(c.attr("is_test") or c.attr("use_global_stats"), "it takes statistics of the batch")
    need(c.dtype("X").kind == "f", f"its input is {c.dtype('X')}")
    rank, last = c.rank("X"), _has_last(c, "data_layout")
    x = first(c, c["X"], rank, last)
    made = c.g.BatchNormalization(
        x, c["Scale"], c["Bias"], c["Mean"], c["Variance"], epsilon=c.attr("epsilon")
    )
    made = back(c, made, rank, last)
    kind = "relu" if c.attr("fuse_with_relu") else c.attr("act_type") or c.attr("activation") or ""
    c.set("Y", activated(c, kind, made, "X", c.attr("alpha") or 0.0))


def flat_rows(c: Call, value: Value, slot: str, axis: int) -> tuple[Value, bool]:
    """A value whose dimensions from ``axis`` on are one, and whether that changed it."""
    if axis == c.rank(slot) - 1:
        return value, False
    front = c.g.Slice(c.g.Shape(value), [0], [axis])
    return c.g.Reshape(value, c.g.Concat(front, [-1], axis=0)), True


def layer_normalized(
    c: Call, x: Value, scale: Value | None, bias: Value | None, slot: str, epsilon: float
) -> Value:
    """A value normalized over its last dimension."""
    g = c.g
    if g.opset >= 17 and scale is not None:
        made: Value = g.LayerNormalization(x, scale, bias, axis=-1, epsilon=epsilon)
        return made
    centred = g.Sub(x, g.reduce("ReduceMean", x, [-1], True))
    variance = g.reduce("ReduceMean", g.Mul(centred, centred), [-1], True)
    made = g.Div(centred, g.Sqrt(g.Add(variance, c.number(epsilon, slot))))
    made = made if scale is None else g.Mul(made, scale)
    return made if bias is None else g.Add(made, bias)


@exports("layer_norm")
def layer_norm(c: Call) -> None:
    """``LayerNormalization`` over all dimensions from ``begin_norm_axis`` on, as if one."""
    g, axis = c.g, c.attr("begin_norm_axis")
    x, flat = flat_rows(c, c["X"], "X", axis)
    size = int(np.prod([max(dim, 0) for dim in c.shape("X")[axis:]]))
    scale = c.get("Scale")
    if scale is None:
        scale = c.number(np.ones(size)) if size else None
    made = layer_normalized(c, x, scale, c.get("Bias"), "X", c.attr("epsilon"))
    c.set("Y", g.Reshape(made, g.Shape(c["X"])) if flat else made)


@exports("instance_norm")
def instance_norm(c: Call) -> None:
    """``InstanceNormalization``."""
    channels = c.shape("X")[1]
    need(channels > 0, "its number of channels is open")
    scale = c.get("Scale") or c.number(np.ones(channels))
    bias = c.get("Bias") or c.number(np.zeros(channels))
    c.set("Y", c.g.InstanceNormalization(c["X"], scale, bias, epsilon=c.attr("epsilon")))


@exports("group_norm", without="groups of different sizes")
def group_norm(c: Call) -> None:
    """``InstanceNormalization`` of the groups as if they were channels, then scale and bias."""
    g, groups, rank = c.g, c.attr("groups"), c.rank("X")
    last = _has_last(c, "data_layout")
    x = first(c, c["X"], rank, last)
    channels = c.shape("X")[-1 if last else 1]
    need(channels % groups == 0, f"its {channels} channels are not divisible into {groups} groups")
    grouped = g.reshape(x, 0, groups, -1)
    ones, zeros = c.number(np.ones(groups)), c.number(np.zeros(groups))
    made = g.InstanceNormalization(grouped, ones, zeros, epsilon=c.attr("epsilon"))
    made = g.Reshape(made, g.Shape(x))
    for slot, kind in (("Scale", "Mul"), ("Bias", "Add")):
        if c.get(slot) is not None:
            made = g.node(kind, made, g.reshape(c[slot], -1, *[1] * (rank - 2)))
    c.set("Y", back(c, made, rank, last))


@exports("norm")
def norm(c: Call) -> None:
    """The input by its length along an axis."""
    g, x = c.g, c["X"]
    squares = g.reduce("ReduceSum", g.Mul(x, x), [c.attr("axis")], True)
    length = g.Sqrt(g.Add(squares, c.number(c.attr("epsilon"))))
    c.set("Norm", length)
    c.set("Out", g.Div(x, length))


@exports("lrn")
def lrn(c: Call) -> None:
    """``LRN``, whose alpha is divided by the size of the window."""
    rank, last, size = c.rank("X"), c.attr("data_format") == "NHWC", c.attr("n")
    made = c.g.LRN(
        first(c, c["X"], rank, last),
        size=size, alpha=c.attr("alpha") * size, beta=c.attr("beta"), bias=c.attr("k"),
    )  # fmt: skip
    c.set("Out", back(c, made, rank, last))


@exports("affine_channel")
def affine_channel(c: Call) -> None:
    """A factor and a summand for each channel."""
    rank, last = c.rank("X"), _has_last(c, "data_layout")
    shape = [1] * (rank - 2) if not last else []
    scale, bias = (c.g.reshape(c[slot], -1, *shape) for slot in ("Scale", "Bias"))
    c.set("Out", c.g.Add(c.g.Mul(c["X"], scale), bias))


@exports("data_norm", without="scale and shift")
def data_norm(c: Call) -> None:
    """Less the mean, times the root of count by sum of squares."""
    g = c.g
    need(not c.attr("enable_scale_and_shift"), "it has a scale and a shift")
    need(c.attr("slot_dim") in (-1, 0, None), "it looks at shows of slots")
    means = g.Div(c["BatchSum"], c["BatchSize"])
    scales = g.Sqrt(g.Div(c["BatchSize"], c["BatchSquareSum"]))
    c.set("Means", means)
    c.set("Scales", scales)
    c.set("Y", g.Mul(g.Sub(c["X"], means), scales))


@exports("spectral_norm")
def spectral_norm(c: Call) -> None:
    """The weight by its greatest singular value, found step by step."""
    g, rank, dim = c.g, c.rank("Weight"), c.attr("dim")
    turned = [dim, *(axis for axis in range(rank) if axis != dim)]
    matrix = g.Transpose(c["Weight"], perm=turned) if dim else c["Weight"]
    matrix = g.Flatten(matrix, axis=1)
    u, v = g.reshape(c["U"], 1, -1), g.reshape(c["V"], -1, 1)
    tiny = c.number(c.attr("eps"), "Weight")

    def unit(x: str) -> str:
        made: str = g.Div(x, g.Add(g.ReduceL2(x, keepdims=1), tiny))
        return made

    for _ in range(c.attr("power_iters")):
        v = unit(g.Transpose(g.MatMul(u, matrix), perm=[1, 0]))
        u = unit(g.Transpose(g.MatMul(matrix, v), perm=[1, 0]))
    sigma = g.reshape(g.MatMul(g.MatMul(u, matrix), v), 1)
    c.set("Out", g.Div(c["Weight"], sigma))
