"""Pooling of images and volumes: regular, global and adaptive windows; unpooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ops._pooling import Pooling
from dpexec.engine.ops._windows import has_channels_last, size_of
from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.conv2d import back, first, pads_of
from dpexec.onnx.exporting.refusals import need


def _adaptive(c: Call, x: Value, kind: str, size: tuple[int, ...], output: list[int]) -> Value:
    """Windows of unequal sizes, along one axis after the other."""
    if max(output) == 1:
        made: Value = c.g.node(f"Global{kind}Pool", x)
        return made
    need(min(size) > 0, f"its adaptive windows depend on the open size {list(size)} of its images")
    if all(n % count == 0 for n, count in zip(size, output, strict=True)):
        steps = [n // count for n, count in zip(size, output, strict=True)]
        made = c.g.node(f"{kind}Pool", x, kernel_shape=steps, strides=steps)
        return made
    reduction = "ReduceMax" if kind == "Max" else "ReduceMean"
    for axis, (n, count) in enumerate(zip(size, output, strict=True), start=2):
        parts = []
        for k in range(count):
            begin, end = k * n // count, -(-(k + 1) * n // count)
            part = c.g.Slice(x, [begin], [end], [axis])
            parts.append(c.g.reduce(reduction, part, [axis], True))
        x = c.g.Concat(*parts, axis=axis) if count > 1 else parts[0]
    return x


def _windows(c: Call, x: Value, kind: str, size: tuple[int, ...]) -> Value:
    """Windows of one size."""
    kernel, strides = list(c.attr("ksize")), list(c.attr("strides"))
    more: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    counted = kind == "Average" and not c.attr("exclusive")
    pairs = list(pads_of(c, "X", tuple(kernel)))
    if min(size) > 0:
        axes = Pooling.of(
            size, ksize=kernel, strides=strides, paddings=[n for pair in pairs for n in pair],
            ceil_mode=bool(c.attr("ceil_mode")),
        ).axes  # fmt: skip
        pairs = [(a.before, a.reach - a.before - a.size) for a in axes]
    elif c.attr("ceil_mode"):
        need(not counted, "its windows count padding and are rounded up over an open size")
        more["ceil_mode"] = 1
    crop = [(min(before, 0), min(after, 0)) for before, after in pairs]
    if any(map(any, crop)):
        starts = [-before for before, _ in crop]
        ends = [after or np.iinfo(np.int64).max for _, after in crop]
        x = c.g.Slice(x, starts, ends, list(range(2, 2 + len(pairs))))
    befores = [max(before, 0) for before, _ in pairs]
    afters = [max(after, 0) for _, after in pairs]
    fits = all(p < k for p, k in zip(befores + afters, kernel * 2, strict=True))
    need(fits or counted or kind == "Max", "its windows lie in the padding alone")
    if not fits or counted:  # the padding counts, which ONNX does not know of what is rounded up
        fill = 0.0 if counted else float(np.finfo(c.dtype("X")).min)
        x = c.g.Pad(x, [0, 0, *befores, 0, 0, *afters], c.number(fill))
    elif any(befores + afters):
        more["pads"] = befores + afters
    made: Value = c.g.node(f"{kind}Pool", x, **more)
    return made


@exports(
    "pool2d", "pool3d",
    without="images of 8 bits; adaptive windows, and padding that counts in windows rounded up, "
    "over open sizes",
)  # fmt: skip
def pool(c: Call) -> None:
    """``MaxPool`` and ``AveragePool``, or the global ones."""
    need(c.dtype("X").kind == "f", f"its images are {c.dtype('X')}")
    rank, last = c.rank("X"), has_channels_last(c.attr("data_format"))
    kind = "Max" if c.attr("pooling_type") == "max" else "Average"
    size = tuple(size_of(c.shape("X"), c.attr("data_format")))
    x = first(c, c["X"], rank, last)
    if c.attr("global_pooling"):
        x = x if c.attr("adaptive") else c.g.node(f"Global{kind}Pool", x)
    elif c.attr("adaptive"):
        x = _adaptive(c, x, kind, size, list(c.attr("ksize")))
    else:
        x = _windows(c, x, kind, size)
    c.set("Out", back(c, x, rank, last))


@exports("max_pool2d_with_index", "max_pool3d_with_index", without="adaptive windows")
def pool_with_index(c: Call) -> None:
    """``MaxPool``, whose indices also count images and channels."""
    size, kernel = c.shape("X")[2:], list(c.attr("ksize"))
    strides, pads = list(c.attr("strides")), list(c.attr("paddings"))
    need(not c.attr("adaptive"), "its windows are adaptive")
    need(min(size) > 0, f"the size of its images is open: {c.spec('X')}")
    if c.attr("global_pooling"):
        kernel, strides, pads = list(size), [1] * len(size), [0] * len(size)
    made, indices = c.g.MaxPool(
        c["X"], kernel_shape=kernel, strides=strides, pads=pads * 2, outputs=2
    )
    plane = int(np.prod(size))
    c.set("Out", made)
    c.set("Mask", c.g.cast(c.g.Mod(indices, np.array(plane, np.int64)), c.dtype("Mask")))


@exports("unpool")
def unpool(c: Call) -> None:
    """``ScatterElements`` of numbers to their places in images of zeros."""
    g, size = c.g, c.shape("Out")[2:]
    need(min(size) > 0, "the size of its images is open")
    flat, places = g.reshape(c["X"], 0, 0, -1), g.reshape(c["Indices"], 0, 0, -1)
    front = g.Slice(g.Shape(c["X"]), [0], [2])
    shape = g.Concat(front, g.ints(int(np.prod(size))), axis=0)
    places = c.typed(places, c.dtype("Indices"), np.int64)
    made = g.ScatterElements(g.Expand(c.number(0.0), shape), places, flat, axis=2)
    c.set("Out", g.reshape(made, 0, 0, *size))
