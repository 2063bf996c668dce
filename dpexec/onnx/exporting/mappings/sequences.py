"""Sequences: softmax, expansion, padding, reversal, concatenation, windows, masks."""

from __future__ import annotations

import numpy as np

from dpexec.engine.core.dtypes import to_numpy
from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows, interleaved, spread

_ZERO = np.array(0, np.int64)


@exports("sequence_softmax")
def sequence_softmax(c: Call) -> None:
    """``Softmax`` along the steps of padded sequences."""
    rows = Rows(c.g, c.sequences("X"))
    padded = rows.padded(c["X"], c.rank("X"), c.number(-np.inf))
    c.set("Out", rows.taken_out(c.g.Softmax(padded, axis=1)))


@exports("sequence_expand")
def sequence_expand(c: Call) -> None:
    """``Gather`` of rows as often as Y has parts."""
    g = c.g
    repeats = c.lengths("Y")[c.attr("ref_level")]
    owners = Rows(g, repeats).owners
    lengths = c.lengths("X")
    if not lengths:
        c.set("Out", g.Gather(c["X"], owners), lengths=())
        return
    made = g.Gather(lengths[-1], owners)
    starts = g.Gather(Rows(g, lengths[-1]).starts, owners)
    c.set("Out", g.Gather(c["X"], spread(g, starts, made)), lengths=[made])


@exports("sequence_expand_as")
def sequence_expand_as(c: Call) -> None:
    """``Gather`` of a row for each step of Y."""
    owners = Rows(c.g, c.sequences("Y")).owners
    c.set("Out", c.g.Gather(c["X"], owners), lengths=c.lengths("Y")[-1:])


@exports("sequence_pad")
def sequence_pad(c: Call) -> None:
    """Sequences of one length, and their lengths."""
    lengths, steps = c.sequences("X"), c.attr("padded_length")
    rows = Rows(c.g, lengths)
    count = None if steps in (-1, None) else np.array(steps, np.int64)
    fill = c["PadValue"]
    made = rows.padded(c["X"], c.rank("X"), fill, steps=count)
    c.set("Out", made, lengths=())
    c.set("Length", lengths, lengths=())


@exports("sequence_unpad")
def sequence_unpad(c: Call) -> None:
    """The rows of padded sequences."""
    g = c.g
    lengths = g.reshape(c.typed(c["Length"], c.dtype("Length"), np.int64), -1)
    made = Rows(g, lengths).taken_out(c["X"])
    made = g.reshape(made, -1, 1) if c.rank("X") == 2 else made
    c.set("Out", made, lengths=[lengths])


@exports("sequence_reverse")
def sequence_reverse(c: Call) -> None:
    """The rows of each sequence in the opposite order."""
    c.set("Y", Rows(c.g, c.sequences("X")).turned(c["X"]), lengths=c.lengths("X"))


@exports("sequence_concat")
def sequence_concat(c: Call) -> None:
    """The first sequences of all inputs one after another, then the second ones, ..."""
    g, names = c.g, c.op.inputs["X"]
    several = [c.values.lengths(name) for name in names]
    need(all(several), "an input has no sequences")
    lengths = [found[-1] for found in several]
    before, starts = None, []
    for x, length in zip(c.all("X"), lengths, strict=True):
        own = Rows(g, length).starts
        starts.append(own if before is None else g.Add(own, before))
        size = g.size(x, 0)
        before = size if before is None else g.Add(before, size)
    behind, ranks = c.shape("Out")[1:], [c.spec("X", i).rank for i in range(len(names))]
    alike = min(ranks) == max(ranks)
    need(alike or min(behind) >= 0, "the shapes of its inputs differ and are open")
    rows = [x if alike else g.reshape(x, -1, *behind) for x in c.all("X")]
    index = spread(g, interleaved(g, starts), interleaved(g, lengths))
    made = lengths[0]
    for length in lengths[1:]:
        made = g.Add(made, length)
    c.set("Out", g.Gather(g.Concat(*rows, axis=0), index), lengths=[made])


@exports("sequence_reshape")
def sequence_reshape(c: Call) -> None:
    """Rows of another width; sequences become shorter or longer."""
    width, made = c.shape("X")[1], c.attr("new_dim")
    need(width > 0, "the width of its rows is open")
    lengths = c.g.Div(
        c.g.Mul(c.sequences("X"), np.array(width, np.int64)), np.array(made, np.int64)
    )
    c.set("Out", c.g.reshape(c["X"], -1, made), lengths=[lengths])


@exports("sequence_slice")
def sequence_slice(c: Call) -> None:
    """A part of each sequence."""
    g = c.g
    offset, length = (
        g.reshape(c.typed(c[slot], c.dtype(slot), np.int64), -1) for slot in ("Offset", "Length")
    )
    starts = g.Add(Rows(g, c.sequences("X")).starts, offset)
    c.set("Out", g.Gather(c["X"], spread(g, starts, length)), lengths=[length])


def context(c: Call, rows: Rows, x: Value, offset: int, fill: Value) -> Value:
    """For each row the one ``offset`` rows later in its sequence; ``fill`` where there is none."""
    g = c.g
    if offset == 0:
        return x
    places = g.Add(rows.places, np.array(offset, np.int64))
    if offset < 0:
        there = g.GreaterOrEqual(places, _ZERO)
    else:
        there = g.Less(places, g.Gather(rows.lengths, rows.owners))
    index = g.Where(there, g.Add(rows.numbers, np.array(offset, np.int64)), _ZERO)
    made: Value = g.Where(g.Unsqueeze(there, [1]), g.Gather(x, index), fill)
    return made


def contexts(c: Call) -> Value:
    """Each row beside those before and after it in its sequence."""
    rows, zero = Rows(c.g, c.sequences("X")), c.number(0.0)
    begin, count = c.attr("contextStart") or 0, c.attr("contextLength")
    parts = [context(c, rows, c["X"], begin + i, zero) for i in range(count)]
    made: Value = c.g.Concat(*parts, axis=1) if count > 1 else parts[0]
    return made


@exports("sequence_conv", without="padding that is learned")
def sequence_conv(c: Call) -> None:
    """Rows beside those before and after them, times the filter."""
    need(not c.attr("paddingTrainable"), "its padding is learned")
    c.set("Out", c.g.MatMul(contexts(c), c["Filter"]))


@exports("row_conv", without="padded sequences", constants="Filter")
def row_conv(c: Call) -> None:
    """Each row plus those after it, weighted by channel."""
    g, lengths = c.g, c.lengths("X")
    need(lengths, "its input has no sequences")
    rows, made = Rows(g, lengths[-1]), None
    for i in range(len(c.constant("Filter"))):
        part = context(c, rows, c["X"], i, c.number(0.0))
        part = g.Mul(part, g.Slice(c["Filter"], [i], [i + 1], [0]))
        made = part if made is None else g.Add(made, part)
    c.set("Out", made or c["X"])


@exports("sequence_enumerate")
def sequence_enumerate(c: Call) -> None:
    """For each step, its id and the ids after it."""
    rows, fill = Rows(c.g, c.sequences("X")), c.number(c.attr("pad_value"))
    x = c["X"] if c.rank("X") == 2 else c.g.Unsqueeze(c["X"], [1])
    parts = [context(c, rows, x, i, fill) for i in range(c.attr("win_size"))]
    c.set("Out", c.g.Concat(*parts, axis=1) if len(parts) > 1 else parts[0])


@exports("sequence_mask")
def sequence_mask(c: Call) -> None:
    """For each place whether it lies within the length."""
    g = c.g
    lengths = c.typed(c["X"], c.dtype("X"), np.int64)
    longest = c.get("MaxLenTensor")
    if longest is not None:
        count = g.Squeeze(g.reshape(c.typed(longest, c.dtype("MaxLenTensor"), np.int64), 1), [0])
    elif c.attr("maxlen") > 0:
        count = np.array(c.attr("maxlen"), np.int64)
    else:
        count = g.reduce("ReduceMax", lengths, None)
    times = g.Range(_ZERO, count, np.array(1, np.int64))
    hits = g.Less(times, g.Unsqueeze(lengths, [-1]))
    c.set("Y", g.cast(hits, to_numpy(c.attr("out_dtype"))), lengths=())


def kept(c: Call, keep: Value, lengths: Value) -> tuple[Value, Value]:
    """The numbers of rows that are kept, and how many each sequence keeps."""
    g = c.g
    rows = Rows(g, lengths)
    counts = rows.padded(g.cast(keep, np.int64), 1, g.constant(_ZERO))
    index = g.reshape(g.NonZero(keep), -1)
    return index, g.reduce("ReduceSum", counts, [1])


@exports("sequence_erase")
def sequence_erase(c: Call) -> None:
    """Without the steps that have certain ids."""
    g, tokens = c.g, list(c.attr("tokens"))
    ids = g.reshape(c["X"], -1)
    if not tokens:
        c.set("Out", c["X"], lengths=c.lengths("X"))
        return
    same = g.Equal(g.Unsqueeze(ids, [1]), np.array([tokens], c.dtype("X")))
    hits = g.cast(g.reduce("ReduceMax", g.cast(same, np.int32), [1]), np.bool_)
    index, lengths = kept(c, g.Not(hits), c.sequences("X"))
    c.set("Out", g.Gather(c["X"], index), lengths=[*c.lengths("X")[:-1], lengths])


@exports("lod_reset")
def lod_reset(c: Call) -> None:
    """The same rows in other sequences."""
    g, before = c.g, list(c.lengths("X")) if c.attr("append") else []
    if c.lengths("Y"):
        before, made = [], list(c.lengths("Y"))
    else:
        if c.get("Y") is not None:
            offsets = c.typed(c["Y"], c.dtype("Y"), np.int64)
        else:
            offsets = g.ints(*c.attr("target_lod"))
        last = np.iinfo(np.int64).max
        made = [g.Sub(g.Slice(offsets, [1], [last]), g.Slice(offsets, [0], [-1]))]
    c.set("Out", c["X"], lengths=[*before, *made])


@exports("im2sequence", without="sizes of images that are fed; windows larger than images")
def im2sequence(c: Call) -> None:
    """Windows of images as steps: a convolution with a filter for each element of a window."""
    g = c.g
    need(c.get("Y") is None, "the sizes of its images are fed")
    made = windows(c, list(c.attr("kernels")), list(c.attr("strides")), list(c.attr("paddings")))
    per_image = g.reduce("ReduceProd", g.Slice(g.Shape(made), [2], [4]), None, True)
    rows = g.Transpose(made, perm=[0, 2, 3, 1])
    width = c.shape("X")[1] * int(np.prod(c.attr("kernels")))
    lengths = g.Expand(per_image, g.size(c["X"], 0))
    c.set("Out", g.reshape(rows, -1, width), lengths=[lengths])


def windows(c: Call, kernel: list[int], strides: list[int], pads: list[int]) -> Value:
    """Windows of images, ``(batch, channels * kernel, height, width)``."""
    channels = c.shape("X")[1]
    need(channels > 0, "its number of channels is open")
    sizes = zip(c.shape("X")[2:], kernel, pads[:2], pads[2:], strict=True)
    need(all(n < 0 or n + a + b >= k for n, k, a, b in sizes), "its windows exceed the images")
    count = channels * int(np.prod(kernel))
    filters = c.number(np.eye(count).reshape(count, channels, *kernel))
    made: Value = c.g.Conv(c["X"], filters, strides=strides, pads=pads, kernel_shape=kernel)
    return made


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


@exports("sequence_scatter", opset=16)
def sequence_scatter(c: Call) -> None:
    """``ScatterND`` that adds, in the row of each sequence."""
    g = c.g
    owners = g.Unsqueeze(Rows(g, c.sequences("Ids")).owners, [1])
    ids = g.reshape(c.typed(c["Ids"], c.dtype("Ids"), np.int64), -1, 1)
    updates = g.reshape(c["Updates"], -1)
    index = g.Concat(owners, ids, axis=1)
    c.set("Out", g.ScatterND(c["X"], index, updates, reduction="add"), lengths=())
