"""Tensors put together and taken apart: concat, stack, split, unstack, columns of each."""

from __future__ import annotations

from functools import reduce

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports

_LAST = np.iinfo(np.int64).max


def axis_of(c: Call) -> int:
    """The attribute ``axis``, or the constant in AxisTensor."""
    if c.get("AxisTensor") is not None:
        return int(c.constant("AxisTensor").item())
    return int(c.attr("axis"))


def pieces(c: Call, value: Value, sizes: list[int], axis: int, dim: int) -> list[Value]:
    """Parts of a tensor along an axis.

    Args:
        c: the operator.
        value: the tensor.
        sizes: of the parts; all -1 if they are equal and unknown.
        axis: where it is divided.
        dim: its size there, -1 if it is unknown.
    """
    count, g = len(sizes), c.g
    if count == 1:
        return [value]
    if sizes.count(-1) == 1 and dim > 0:
        sizes = [dim - sum(sizes) - 1 if size < 0 else size for size in sizes]
    if min(sizes) >= 0:
        made: list[Value] = g.Split(value, sizes, axis=axis, outputs=count)
        return made
    if max(sizes) < 0:
        more = {"num_outputs": count} if g.opset >= 18 else {}
        made = g.Split(value, axis=axis, outputs=count, **more)
        return made
    known = g.ints(sum(size for size in sizes if size > 0))
    rest = g.Sub(g.size(value, axis), known)
    parts = [rest if size < 0 else g.ints(size) for size in sizes]
    made = g.Split(value, g.Concat(*parts, axis=0), axis=axis, outputs=count)
    return made


@exports("concat", constants="AxisTensor")
def concat(c: Call) -> None:
    """``Concat``."""
    values = c.all("X")
    c.set("Out", c.g.Concat(*values, axis=axis_of(c)) if len(values) > 1 else values[0])


@exports("stack")
def stack(c: Call) -> None:
    """Tensors of one shape along a new dimension."""
    axis = c.attr("axis") % (c.rank("X") + 1)
    c.set("Y", c.g.Concat(*(c.g.Unsqueeze(x, [axis]) for x in c.all("X")), axis=axis))


@exports("split", constants="AxisTensor SectionsTensorList")
def split(c: Call) -> None:
    """Parts of given sizes, or of equal ones."""
    axis = axis_of(c)
    given = c.constants("SectionsTensorList")
    sizes = [int(array.item()) for array in given] or list(c.attr("sections") or [])
    names, dim = c.op.outputs["Out"], c.shape("X")[axis]
    if not sizes:
        sizes = [dim // len(names) if dim > 0 else -1] * len(names)
    c.set("Out", pieces(c, c["X"], sizes, axis % c.rank("X"), dim))


@exports("unstack", "unbind")
def unstack(c: Call) -> None:
    """The parts along a dimension, without it."""
    axis = c.attr("axis") % c.rank("X")
    slot = "Y" if c.op.type == "unstack" else "Out"
    count = len(c.op.outputs[slot])
    parts = pieces(c, c["X"], [1] * count, axis, count)
    c.set(slot, [c.g.Squeeze(part, [axis]) for part in parts])


@exports("partial_concat", "partial_sum")
def partial(c: Call) -> None:
    """Some columns of every matrix, side by side or added up."""
    g, start, length = c.g, c.attr("start_index"), c.attr("length")
    start = start if start >= 0 else start + c.shape("X")[1]
    end = _LAST if length < 0 else start + length
    parts = [g.Slice(x, [start], [end], [1]) for x in c.all("X")]
    together = c.op.type == "partial_sum"
    c.set("Out", reduce(g.Add, parts) if together else g.Concat(*parts, axis=1))
