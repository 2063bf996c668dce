"""Pools: ``MaxPool``, ``AveragePool``, ``LpPool`` and those over whole images."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.convolutions import explicit_pads


def _pooled(node: Node, x: Variable, kind: str, exclusive: bool = True) -> Variable:
    """The pool of a node's window over images; sequences become images of one row."""
    kernel = list(node.attr("kernel_shape"))
    count = len(kernel)
    strides = list(node.attr("strides", [1] * count))
    dilations = list(node.attr("dilations", [1] * count))
    pads = explicit_pads(node, node.dims(0)[2:], kernel, strides, dilations)
    if any(d != 1 for d in dilations):
        return _dilated(node, x, kind, exclusive, pads)
    if count == 1:
        x = node.unsqueeze(x, [2])
        kernel, strides, pads = [1, *kernel], [1, *strides], [0, 0, *pads]
    around = pads[::2] if pads[::2] == pads[1::2] else pads
    if kind == "avg" and not exclusive and node.attr("ceil_mode", 0) and node.op_type != "LpPool":
        # Fluid divides by whole windows, ONNX by what lies on the image and its padding.
        if any(pads):
            x = node.add("pad", {"X": x}, paddings=[0, 0, 0, 0, *pads], pad_value=0.0)
        around, exclusive = [0] * len(kernel), True
    made = node.add(
        "pool3d" if count == 3 else "pool2d",
        {"X": x},
        ksize=kernel,
        strides=strides,
        paddings=around,
        pooling_type=kind,
        ceil_mode=bool(node.attr("ceil_mode", 0)),
        exclusive=exclusive,
    )
    made = _without_windows_on_padding(node, made, kernel, strides, pads)
    return node.squeeze(made, [2]) if count == 1 else made


def _dilated(node: Node, x: Variable, kind: str, exclusive: bool, pads: list[int]) -> Variable:
    """A pool whose windows have gaps, which fluid's pools lack: element by element of a window."""
    rank, ceil = len(node.attr("kernel_shape")), bool(node.attr("ceil_mode", 0))
    more = _overhang(node, pads) if ceil else [0] * (2 * rank)
    around, behind = [0, 0, 0, 0, *pads], [0, 0, 0, 0, *more]
    outside = float(np.finfo(np.float32).min) if kind == "max" else 0.0

    def padded(var: Variable, sides: list[int], value: float) -> Variable:
        if not any(sides):
            return var
        return node.add("pad", {"X": var}, paddings=sides, pad_value=value)

    parts = _window_parts(node, padded(padded(x, around, outside), behind, outside))
    if kind == "max":
        return functools.reduce(lambda a, b: node.binary("elementwise_max", a, b), parts)
    ones = node.add("fill_any_like", {"X": x}, value=1.0)
    counted = padded(padded(ones, around, 0.0 if exclusive else 1.0), behind, 0.0)
    total, count = (node.add("sum", {"X": each}) for each in (parts, _window_parts(node, counted)))
    return node.binary("elementwise_div", total, count)


def _overhang(node: Node, pads: list[int]) -> list[int]:
    """How much more padding lets the last windows fit that begin on the image."""
    kernel = node.attr("kernel_shape")
    strides, dilations = (node.attr(n, [1] * len(kernel)) for n in ("strides", "dilations"))
    found = []
    for i, size in enumerate(node.dims(0)[2:]):
        if not isinstance(size, int):
            node.fail("ceil_mode with dilations needs sizes that are known")
        reach, whole = dilations[i] * (kernel[i] - 1) + 1, size + pads[2 * i] + pads[2 * i + 1]
        count = -(-(whole - reach) // strides[i]) + 1
        count -= (count - 1) * strides[i] >= size + pads[2 * i]
        found += [0, max(0, (count - 1) * strides[i] + reach - whole)]
    return found


def _window_parts(node: Node, x: Variable) -> list[Variable]:
    """For each element of a window, that element of all windows."""
    kernel = node.attr("kernel_shape")
    strides, dilations = (list(node.attr(n, [1] * len(kernel))) for n in ("strides", "dilations"))
    axes, parts = list(range(2, 2 + len(kernel))), []
    for places in itertools.product(*map(range, kernel)):
        starts = [place * step for place, step in zip(places, dilations, strict=True)]
        rest = [(k - 1 - p) * d for k, p, d in zip(kernel, places, dilations, strict=True)]
        ends = [-left if left else 2**31 - 1 for left in rest]
        attrs = {"axes": axes, "starts": starts, "ends": ends, "strides": strides}
        inputs = {"Input": x}
        parts.append(node.builder.add("strided_slice", inputs, attrs, prefix=node.prefix)["Out"])
    return parts


def _without_windows_on_padding(
    node: Node, made: Variable, kernel: list[int], strides: list[int], pads: list[int]
) -> Variable:
    """Without a last window that begins behind the image: ONNX leaves it out."""
    sizes = node.dims(0)[2:]
    sizes = [1] * (len(kernel) - len(sizes)) + sizes
    for i, size in enumerate(sizes):
        count = made.shape[2 + i]
        last = (count - 1) * strides[i]
        if node.attr("ceil_mode", 0) and isinstance(size, int) and last >= size + pads[2 * i]:
            made = node.slice(made, 2 + i, 0, count - 1)
    return made


@operator("MaxPool")
def max_pool(node: Node) -> Any:
    """The largest element of each window."""
    if any(node.outputs[1:]):
        return _with_places(node)
    x = node.var(0)
    if is_float(x.dtype):
        return _pooled(node, x, "max")
    return node.cast(_pooled(node, node.cast(x, VarType.FP32), "max"), x.dtype)


def _with_places(node: Node) -> list[Variable]:
    """The largest elements, and their places counted through the whole tensor."""
    x, dims, kernel = node.var(0), node.dims(0), list(node.attr("kernel_shape"))
    count = len(kernel)
    strides = list(node.attr("strides", [1] * count))
    plain = node.attr("dilations", [1] * count) == [1] * count
    if not plain or node.attr("ceil_mode", 0) or node.attr("storage_order", 0) or count > 2:
        node.fail("places of the largest elements are supported for images and sequences, without "
                  "ceil_mode, dilations and storage_order")  # fmt: skip
    pads = explicit_pads(node, dims[2:], kernel, strides, [1] * count)
    if pads[::2] != pads[1::2]:
        node.fail(f"places of the largest elements need equal pads on both sides, not {pads}")
    pads = pads[::2]
    if count == 1:
        x = node.unsqueeze(x, [2])
        kernel, strides, pads = [1, *kernel], [1, *strides], [0, *pads]
    attrs = {"ksize": kernel, "strides": strides, "paddings": pads}
    made = node.builder.add("max_pool2d_with_index", {"X": x}, attrs, prefix=node.prefix)
    out, inside = made["Out"], node.cast(made["Mask"], VarType.INT64)
    one = node.slice(node.slice(inside, 2, 0, 1), 3, 0, 1)
    ones = node.add("fill_any_like", {"X": one}, value=1.0, dtype=int(VarType.INT64))
    flat = node.reshape(ones, [-1, 1, 1, 1])
    numbers = node.add("cumsum", {"X": flat}, axis=0, exclusive=True)
    size = node.builder.size_variable(math.prod(dims[2:]))
    first = node.binary("elementwise_mul", numbers, size)
    shape = [dims[0], dims[1], 1, 1]
    places = node.binary("elementwise_add", inside, node.reshape(first, shape))
    return [node.squeeze(var, [2]) if count == 1 else var for var in (out, places)]


@operator("MaxUnpool")
def max_unpool(node: Node) -> Any:
    """Zeros, with elements at places that are counted through the whole image before the pool."""
    x, dims, kernel = node.var(0), node.dims(0), node.attr("kernel_shape")
    count = len(kernel)
    strides, pads = node.attr("strides", [1] * count), node.attr("pads", [0] * 2 * count)
    wanted = node.integers(2, "output_shape")
    sizes = dims[:2] + [
        (size - 1) * strides[i] + kernel[i] - pads[i] - pads[count + i]
        for i, size in enumerate(dims[2:])
    ]
    numbers, variables = node.builder.mixed([math.prod(sizes)])
    attrs: dict[str, Any] = {"shape": numbers, "value": 0.0, "dtype": int(x.dtype)}
    zeros = node.add("fill_constant", {"ShapeTensorList": variables}, **attrs)
    given = {"X": zeros, "Ids": node.reshape(node.var(1), [-1]), "Updates": node.reshape(x, [-1])}
    made = node.reshape(node.add("scatter", given), sizes)
    if wanted is None or wanted == sizes:
        return made
    grown = [after for old, new in zip(sizes[2:], wanted[2:], strict=True)
             for after in (0, new - old)]  # fmt: skip
    return node.add("pad", {"X": made}, paddings=[0, 0, 0, 0, *grown])


@operator("AveragePool")
def average_pool(node: Node) -> Any:
    """The mean of each window, with or without what is padded."""
    return _pooled(node, node.var(0), "avg", not node.attr("count_include_pad", 0))


@operator("LpPool")
def lp_pool(node: Node) -> Any:
    """The norm of each window."""
    p, area = node.attr("p", 2), 1
    for width in node.attr("kernel_shape"):
        area *= width
    x = node.add("pow", {"X": node.add("abs", {"X": node.var(0)})}, factor=float(p))
    total = node.scaled(_pooled(node, x, "avg", exclusive=False), area)
    return node.add("pow", {"X": total}, factor=1.0 / p)


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(node: Node) -> Any:
    """Over all but the first two dimensions."""
    x, rank = node.var(0), node.value(0).rank
    kind = "max" if node.op_type == "GlobalMaxPool" else "avg"
    if rank == 4 and node.op_type != "GlobalLpPool":
        return node.add("pool2d", {"X": x}, ksize=[1, 1], global_pooling=True, pooling_type=kind)
    axes: dict[str, Any] = {"dim": list(range(2, rank)), "keep_dim": True}
    if node.op_type != "GlobalLpPool":
        return node.add("reduce_max" if kind == "max" else "reduce_mean", {"X": x}, **axes)
    p = float(node.attr("p", 2))
    powers = node.add("pow", {"X": node.add("abs", {"X": x})}, factor=p)
    return node.add("pow", {"X": node.add("reduce_sum", {"X": powers}, **axes)}, factor=1 / p)
