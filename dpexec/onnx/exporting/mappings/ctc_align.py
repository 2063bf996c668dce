"""``ctc_align``: classes of time steps as tags, without blanks and repetitions."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.sequences import context, kept
from dpexec.onnx.exporting.sequences import Rows


@exports("ctc_align")
def ctc_align(c: Call) -> None:
    """``Compress`` of sequences; padded ones have their tags moved to the front."""
    if c.get("InputLength") is not None:
        _padded(c)
        return
    g, lengths = c.g, c.sequences("Input")
    ids = g.reshape(c["Input"], -1, 1)
    keep = g.Not(g.Equal(ids, c.number(c.attr("blank"), "Input")))
    if c.attr("merge_repeated"):
        before = context(c, Rows(g, lengths), ids, -1, c.number(-1, "Input"))
        keep = g.And(keep, g.Not(g.Equal(ids, before)))
    index, made = kept(c, g.reshape(keep, -1), lengths)
    c.set("Output", g.Gather(ids, index), lengths=[made])


def _padded(c: Call) -> None:
    """By a stable sort of each row: tags first, and padding behind them."""
    g, ids, zero = c.g, c["Input"], np.array(0, np.int64)
    lengths = g.reshape(c.typed(c["InputLength"], c.dtype("InputLength"), np.int64), -1, 1)
    steps = g.size(ids, 1)
    numbers = g.Unsqueeze(g.Range(zero, g.Squeeze(steps, [0]), np.array(1, np.int64)), [0])
    keep = g.And(g.Not(g.Equal(ids, c.number(c.attr("blank"), "Input"))), g.Less(numbers, lengths))
    if c.attr("merge_repeated"):
        none = g.Expand(c.number([[-1]], "Input"), g.Concat(g.size(ids, 0), [1], axis=0))
        before = g.Concat(none, g.Slice(ids, [0], [-1], [1]), axis=1)
        first = g.Equal(numbers, zero)
        keep = g.And(keep, g.Or(first, g.Not(g.Equal(ids, before))))
    whole = g.cast(keep, np.int64)
    order = g.TopK(whole, steps, axis=1, outputs=2)[1]
    counts = g.reduce("ReduceSum", whole, [1], True)
    tags = g.GatherElements(ids, order, axis=1)
    padding = c.number(c.attr("padding_value"), "Input")
    c.set("Output", g.Where(g.Less(numbers, counts), tags, padding), lengths=())
    c.set("OutputLength", c.typed(counts, np.int64, c.dtype("InputLength")), lengths=())
