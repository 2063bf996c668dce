"""Operators over sequences that passes over models for prediction put together out of several."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.activations import activated
from dpexec.onnx.exporting.mappings.sequences import contexts
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows


@exports("fusion_seqconv_eltadd_relu")
def sequence_convolution(c: Call) -> None:
    """Rows beside those before and after them, times the filter; ``Relu``."""
    g, wide = c.g, contexts(c)
    c.set("ColMat", wide)
    c.set("Out", g.Relu(g.Add(g.MatMul(wide, c["Filter"]), g.reshape(c["Bias"], -1))))


@exports("fusion_seqexpand_concat_fc", without="open widths")
def expand_concat_fc(c: Call) -> None:
    """A product with the rows of the first input, and one with those of the others, repeated."""
    g, (first, *others) = c.g, c.all("X")
    width = c.spec("X").shape[1]
    need(width > 0, "its width is open")
    lengths = c.values.lengths(c.op.inputs["X"][0])
    need(len(lengths) == 1, "its first input has no sequences, or nested ones")
    last = np.iinfo(np.int64).max
    weights = [g.Slice(c["FCWeight"], [a], [b], [0]) for a, b in ((0, width), (width, last))]
    beside = g.Concat(*others, axis=1) if len(others) > 1 else others[0]
    shared = g.MatMul(beside, weights[1])
    made = g.Add(g.MatMul(first, weights[0]), g.Gather(shared, Rows(g, lengths[-1]).owners))
    bias = c.get("FCBias")
    made = made if bias is None else g.Add(made, g.reshape(bias, -1))
    c.set("FCOut", shared, lengths=())
    c.set("Out", activated(c, c.attr("fc_activation") or "", made, "FCWeight"))


def _pooled(c: Call) -> list[Value]:
    """Sums, means, or sums over roots of lengths, of every input; 0 for empty sequences."""
    g, kind, made = c.g, c.attr("pooltype"), []
    for name, x in zip(c.op.inputs["X"], c.all("X"), strict=True):
        lengths = c.values.lengths(name)
        need(len(lengths) == 1, "an input has no sequences, or nested ones")
        rows = Rows(g, lengths[-1])
        total = g.reduce("ReduceSum", rows.padded(x, 2, c.number(0.0)), [1])
        count = g.Unsqueeze(g.cast(g.Max(lengths[-1], np.array(1, np.int64)), c.dtype("X")), [1])
        over = {"SUM": None, "AVERAGE": count, "SQRT": g.Sqrt(count)}[kind]
        made.append(total if over is None else g.Div(total, over))
    return made


def _own_sequences(c: Call, made: Value) -> list[Value]:
    """A sequence of one row for each row."""
    return [c.g.Expand(np.array([1], np.int64), c.g.size(made, 0))]


@exports("fusion_seqpool_concat")
def pool_concat(c: Call) -> None:
    """Reductions of padded sequences, side by side."""
    made = c.g.Concat(*_pooled(c), axis=1)
    c.set("Out", made, lengths=_own_sequences(c, made))


@exports("fusion_seqpool_cvm_concat")
def pool_cvm_concat(c: Call) -> None:
    """Reductions of padded sequences; the first two columns become logarithms of counts."""
    g, one, parts = c.g, c.number(1.0), []
    for pooled in _pooled(c):
        shown, clicked = (g.Log(g.Add(g.Slice(pooled, [k], [k + 1], [1]), one)) for k in (0, 1))
        rest = g.Slice(pooled, [2], [np.iinfo(np.int64).max], [1])
        parts.append(g.Concat(shown, g.Sub(clicked, shown), rest, axis=1))
    made = g.Concat(*parts, axis=1)
    c.set("Out", made, lengths=_own_sequences(c, made))
