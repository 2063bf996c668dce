"""Parts of tensors by places: slice, gather, scatter, crop, reverse, roll, diagonals."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.reshape import vector
from dpexec.onnx.exporting.refusals import need

_LAST = np.iinfo(np.int64).max


def _bounds(c: Call, name: str) -> Value | list[int]:
    title = name.capitalize()
    found = vector(c, f"{title}Tensor", f"{title}TensorList", name)
    return list(c.attr(name)) if found is None else found


def _ends(c: Call) -> Value | list[int]:
    """The ends; where one element is taken, and it is the last one, there is no end."""
    starts, ends = _bounds(c, "starts"), _bounds(c, "ends")
    single = [axis in (c.attr("decrease_axis") or []) for axis in c.attr("axes")]
    if isinstance(starts, list) and isinstance(ends, list):
        pairs = zip(starts, ends, single, strict=True)
        return [_LAST if only and start == -1 else end for start, end, only in pairs]
    if not any(single):
        return ends
    last = c.g.And(np.array(single), c.g.Equal(starts, np.array(-1, np.int64)))
    made: Value = c.g.Where(last, np.array(_LAST), ends)
    return made


def _without(c: Call, made: Value, slot: str) -> Value:
    """The part without the dimensions of ``decrease_axis``; fluid keeps one at least."""
    gone = sorted(axis % c.rank(slot) for axis in c.attr("decrease_axis") or [])
    if len(gone) == c.rank(slot):
        return c.g.reshape(made, 1)
    return c.g.Squeeze(made, gone) if gone else made


@exports("slice", without="arrays of tensors")
def slice(c: Call) -> None:
    """``Slice``."""
    need(c.spec("Input").kind.name == "LOD_TENSOR", "it takes a part of an array of tensors")
    starts, ends = _bounds(c, "starts"), _ends(c)
    made = c.g.Slice(c["Input"], starts, ends, list(c.attr("axes")))
    c.set("Out", _without(c, made, "Input"))


@exports("strided_slice")
def strided_slice(c: Call) -> None:
    """``Slice`` with steps, also backwards."""
    starts, steps = _bounds(c, "starts"), _bounds(c, "strides")
    made = c.g.Slice(c["Input"], starts, _ends(c), list(c.attr("axes")), steps)
    c.set("Out", _without(c, made, "Input"))


@exports("gather", "index_select")
def gather(c: Call) -> None:
    """``Gather`` of rows, or along a dimension."""
    index, axis = c["Index"], c.attr("dim") or 0
    index = c.g.reshape(index, -1) if c.rank("Index") > 1 else index
    c.set("Out", c.g.Gather(c["X"], index, axis=axis))


@exports("gather_nd")
def gather_nd(c: Call) -> None:
    """``GatherND``."""
    c.set("Out", c.g.GatherND(c["X"], c.typed(c["Index"], c.dtype("Index"), np.int64)))


@exports("index_sample")
def index_sample(c: Call) -> None:
    """``GatherElements`` of each row."""
    c.set("Out", c.g.GatherElements(c["X"], c["Index"], axis=1))


@exports("scatter", without="adding before opset 16")
def scatter(c: Call) -> None:
    """``ScatterND`` of rows; those that are added to begin at 0."""
    g = c.g
    ids = g.reshape(c.typed(c["Ids"], c.dtype("Ids"), np.int64), -1, 1)
    if c.attr("overwrite"):
        c.set("Out", g.ScatterND(c["X"], ids, c["Updates"]))
        return
    need(g.opset >= 16, "it adds, which needs opset 16 or later")
    zeros = g.Mul(c["Updates"], c.number(0))
    cleared = g.ScatterND(c["X"], ids, zeros)
    c.set("Out", g.ScatterND(cleared, ids, c["Updates"], reduction="add"))


@exports("scatter_nd_add", opset=16)
def scatter_nd_add(c: Call) -> None:
    """``ScatterND`` that adds."""
    index = c.typed(c["Index"], c.dtype("Index"), np.int64)
    c.set("Out", c.g.ScatterND(c["X"], index, c["Updates"], reduction="add"))


@exports("crop", "crop_tensor")
def crop(c: Call) -> None:
    """``Slice`` from offsets on."""
    g, rank = c.g, c.rank("X")
    tensors = c.op.type == "crop_tensor"
    offsets = vector(c, "Offsets", "OffsetsTensor" if tensors else "", "offsets")
    offsets = g.ints(*(c.attr("offsets") or [0] * rank)) if offsets is None else offsets
    if tensors:
        size = vector(c, "Shape", "ShapeTensor", "shape")
    else:
        size = g.Shape(c["Y"]) if c.get("Y") is not None else None
    if size is None:
        shape = [_LAST // 2 if dim < 0 else dim for dim in c.attr("shape")]
        size = g.ints(*shape)
    elif tensors:
        size = g.Where(g.Less(size, g.ints(0)), g.ints(_LAST // 2), size)
    c.set("Out", g.Slice(c["X"], offsets, g.Add(offsets, size)))


@exports("reverse", "flip")
def reverse(c: Call) -> None:
    """``Slice`` with steps backwards."""
    given = c.attr("axis" if c.op.type == "reverse" else "dims")
    axes = sorted({axis % c.rank("X") for axis in given})
    count = len(axes)
    c.set("Out", c.g.Slice(c["X"], [-1] * count, [-_LAST] * count, axes, [-1] * count))


@exports("roll")
def roll(c: Call) -> None:
    """Both parts in the other order, along one dimension after the other."""
    g, made = c.g, c["X"]
    shifts, axes = list(c.attr("shifts")), list(c.attr("dims") or [])
    flat = not axes
    made, axes = (g.reshape(made, -1), [0]) if flat else (made, axes)
    for shift, axis in zip(shifts, axes, strict=True):
        dim = -1 if flat else c.shape("X")[axis]
        shift = shift % dim if dim > 0 else shift
        if shift:
            back = g.Slice(made, [-shift], [_LAST], [axis])
            made = g.Concat(back, g.Slice(made, [0], [-shift], [axis]), axis=axis)
    c.set("Out", g.Reshape(made, g.Shape(c["X"])) if flat else made)


@exports("where")
def where(c: Call) -> None:
    """``Where``."""
    c.set("Out", c.g.Where(c["Condition"], c["X"], c["Y"]))


@exports("where_index")
def where_index(c: Call) -> None:
    """``NonZero``, a row for each place."""
    c.set("Out", c.g.Transpose(c.g.NonZero(c["Condition"]), perm=[1, 0]))


@exports("multiplex")
def multiplex(c: Call) -> None:
    """Each row from the input that its id names."""
    g, ids = c.g, c.typed(c["Ids"], c.dtype("Ids"), np.int64)
    stacked = g.Concat(*(g.Unsqueeze(x, [1]) for x in c.all("X")), axis=1)
    c.set("Out", g.GatherND(stacked, g.reshape(ids, -1, 1), batch_dims=1))


@exports("unique", "unique_with_counts")
def unique(c: Call) -> None:
    """``Unique`` in the order in which values come first."""
    out, _, index, counts = c.g.Unique(c["X"], sorted=0, axis=0, outputs=4)
    c.set("Out", out)
    c.set("Index", c.typed(index, np.int64, c.dtype("Index")))
    if c.op.type == "unique_with_counts":
        c.set("Count", c.typed(counts, np.int64, c.dtype("Count")))


@exports("diag_embed", without="open sizes")
def diag_embed(c: Call) -> None:
    """Vectors on diagonals of matrices."""
    g, rank, offset = c.g, c.rank("Input"), c.attr("offset")
    size = c.shape("Input")[-1]
    need(size > 0, "its size is open")
    count = size + abs(offset)
    places = np.zeros((size, count, count), bool)
    numbers = np.arange(size)
    places[numbers, numbers + max(-offset, 0), numbers + max(offset, 0)] = True
    flat = c.number(places.reshape(size, -1), "Input")
    front = g.Slice(g.Shape(c["Input"]), [0], [rank - 1])
    made = g.Reshape(g.MatMul(c["Input"], flat), g.Concat(front, g.ints(count, count), axis=0))
    one, other = c.attr("dim1") % (rank + 1), c.attr("dim2") % (rank + 1)
    order = list(range(rank - 1))
    for axis, source in sorted(((one, rank - 1), (other, rank))):
        order.insert(axis, source)
    c.set("Out", g.Transpose(made, perm=order))
