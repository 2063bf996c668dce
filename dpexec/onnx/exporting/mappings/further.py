"""Operators that few models hold."""

from __future__ import annotations

from functools import reduce

import numpy as np
import onnx
from onnx import helper

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows

_LAST = np.iinfo(np.int64).max


@exports("print")
def print_(c: Call) -> None:
    """The value itself: nothing is printed."""
    c.set("Out", c["In"])


@exports("select_output")
def select_output(c: Call) -> None:
    """The value for all: only the one that is selected is read."""
    c.set("Out", [c["X"]] * len(c.op.outputs["Out"]))


@exports("split_lod_tensor", without="sequences")
def split_lod_tensor(c: Call) -> None:
    """``Compress`` of the rows for which the mask holds, and of the others."""
    g = c.g
    need(not c.lengths("X"), "its input has sequences")
    mask = g.reshape(c["Mask"], -1)
    c.set("OutTrue", g.Compress(c["X"], mask, axis=0), lengths=())
    c.set("OutFalse", g.Compress(c["X"], g.Not(mask), axis=0), lengths=())


@exports("merge_lod_tensor", "merge_lod_tensor_infer", without="sequences")
def merge_lod_tensor(c: Call) -> None:
    """``Gather`` of the rows of both parts to their places."""
    g, first = c.g, np.array(0, np.int64)
    need(not c.lengths("InTrue") and not c.lengths("InFalse"), "its inputs have sequences")
    mask = g.reshape(c["Mask"], -1)
    yes, no = (g.cast(each, np.int64) for each in (mask, g.Not(mask)))
    behind = g.Add(g.CumSum(no, first, exclusive=1), g.reduce("ReduceSum", yes, None))
    index = g.Where(mask, g.CumSum(yes, first, exclusive=1), behind)
    c.set("Out", g.Gather(g.Concat(c["InTrue"], c["InFalse"], axis=0), index), lengths=())


@exports("add_position_encoding", without="open widths")
def add_position_encoding(c: Call) -> None:
    """The input plus sines and cosines of its positions."""
    g, x, rank = c.g, c["X"], c.rank("X")
    half = c.shape("X")[-1] // 2
    need(half > 0, "its width is open")
    steps = 10000.0 ** (np.arange(half) / (half - 1)) if half > 1 else np.full(1, 10000.0)
    if rank == 3:
        count = g.Squeeze(g.size(x, 1), [0])
        places = g.Range(np.array(0, np.int64), count, np.array(1, np.int64))
    else:
        places = Rows(g, c.sequences("X")).places
    angles = g.Div(g.Unsqueeze(g.cast(places, c.dtype("X")), [1]), c.number(steps))
    encoding = g.Mul(g.Concat(g.Sin(angles), g.Cos(angles), axis=1), c.number(c.attr("beta")))
    c.set("Out", g.Add(g.Mul(x, c.number(c.attr("alpha"))), encoding))


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


@exports("addmm")
def addmm(c: Call) -> None:
    """A part of the input and a part of a product."""
    g = c.g
    product = g.Mul(g.MatMul(c["X"], c["Y"]), c.number(c.attr("Alpha")))
    c.set("Out", g.Add(g.Mul(c["Input"], c.number(c.attr("Beta"))), product))


@exports("kron", without="open sizes")
def kron(c: Call) -> None:
    """A product of all pairs of numbers, as blocks."""
    shapes = [list(c.shape(slot)) for slot in ("X", "Y")]
    need(min(map(min, shapes)) > 0, "its sizes are open")
    rank = max(map(len, shapes))
    x, y = ([1] * (rank - len(shape)) + shape for shape in shapes)
    one = c.g.reshape(c["X"], *(n for pair in zip(x, [1] * rank, strict=True) for n in pair))
    other = c.g.reshape(c["Y"], *(n for pair in zip([1] * rank, y, strict=True) for n in pair))
    size = [a * b for a, b in zip(x, y, strict=True)]
    c.set("Out", c.g.reshape(c.g.Mul(one, other), *size))


@exports("l1_norm")
def l1_norm(c: Call) -> None:
    """The sum of all sizes."""
    c.set("Out", c.g.reshape(c.g.reduce("ReduceSum", c.g.Abs(c["X"]), None), 1))


@exports("partial_concat", "partial_sum")
def partial(c: Call) -> None:
    """Some columns of every matrix, side by side or added up."""
    g, start, length = c.g, c.attr("start_index"), c.attr("length")
    start = start if start >= 0 else start + c.shape("X")[1]
    end = _LAST if length < 0 else start + length
    parts = [g.Slice(x, [start], [end], [1]) for x in c.all("X")]
    together = c.op.type == "partial_sum"
    c.set("Out", reduce(g.Add, parts) if together else g.Concat(*parts, axis=1))


@exports("shard_index")
def shard_index(c: Call) -> None:
    """The number within the shard, if it is this one's."""
    g, size = c.g, -(-c.attr("index_num") // c.attr("nshards"))
    step = c.number(size)
    own = g.Equal(g.Div(c["X"], step), c.number(c.attr("shard_id")))
    c.set("Out", g.Where(own, g.Mod(c["X"], step), c.number(c.attr("ignore_value"))))


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


@exports("gather_tree")
def gather_tree(c: Call) -> None:
    """``Scan`` from the last step on: each beam reads what its parent wrote."""
    g, inner = c.g, c.g.inner()
    dtype = onnx.TensorProto.INT64
    ids, parents = (c.typed(c[slot], c.dtype(slot), np.int64) for slot in ("Ids", "Parents"))
    beam, now, before = (inner.unique(f"{g.origin[0]}/{n}") for n in ("beam", "ids", "parents"))
    shown = inner.GatherElements(now, beam, axis=1)
    after = inner.GatherElements(before, beam, axis=1)
    body = helper.make_graph(
        inner.nodes, "step",
        [helper.make_tensor_value_info(name, dtype, [None, None]) for name in (beam, now, before)],
        [helper.make_tensor_value_info(name, dtype, [None, None]) for name in (after, shown)],
    )  # fmt: skip
    shape = g.Slice(g.Shape(ids), [1], [3])
    count = g.Squeeze(g.size(ids, 2), [0])
    numbers = g.Range(np.array(0, np.int64), count, np.array(1, np.int64))
    _, made = g.Scan(
        g.Expand(numbers, shape), ids, parents, body=body, num_scan_inputs=2, outputs=2,
        scan_input_directions=[1, 1], scan_output_directions=[1],
    )  # fmt: skip
    c.set("Out", c.typed(made, np.int64, c.dtype("Out")))


@exports("sequence_scatter", opset=16)
def sequence_scatter(c: Call) -> None:
    """``ScatterND`` that adds, in the row of each sequence."""
    g = c.g
    owners = g.Unsqueeze(Rows(g, c.sequences("Ids")).owners, [1])
    ids = g.reshape(c.typed(c["Ids"], c.dtype("Ids"), np.int64), -1, 1)
    updates = g.reshape(c["Updates"], -1)
    index = g.Concat(owners, ids, axis=1)
    c.set("Out", g.ScatterND(c["X"], index, updates, reduction="add"), lengths=())


@exports("roi_pool", without="regions that are divided by RoisLod")
def roi_pool(c: Call) -> None:
    """``MaxRoiPool`` with the images that sequences of regions belong to."""
    g = c.g
    need(c.get("RoisLod") is None, "its regions are divided by RoisLod")
    images = g.cast(Rows(g, c.sequences("ROIs")).owners, c.dtype("ROIs"))
    regions = g.Concat(g.Unsqueeze(images, [1]), c["ROIs"], axis=1)
    shape = [c.attr("pooled_height"), c.attr("pooled_width")]
    made = g.MaxRoiPool(c["X"], regions, pooled_shape=shape, spatial_scale=c.attr("spatial_scale"))
    c.set("Out", made, lengths=())


@exports("deformable_conv", "deformable_conv_v1", opset=19)
def deformable_conv(c: Call) -> None:
    """``DeformConv``."""
    pads = list(c.attr("paddings"))
    mask = c["Mask"] if c.op.type == "deformable_conv" else None
    made = c.g.DeformConv(
        c["Input"], c["Filter"], c["Offset"], None, mask,
        strides=list(c.attr("strides")), pads=pads * 2, dilations=list(c.attr("dilations")),
        group=c.attr("groups"), offset_group=c.attr("deformable_groups"),
    )  # fmt: skip
    c.set("Output", made)


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
