"""``DynamicRNN``: sequences in the order of their lengths, a step of all of them at a time.

A rank table is the numbers of the sequences, the longest first, and beside them their lengths.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from dpexec.onnx.exporting.builder import Builder, Value, onnx_type
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows, spread

_ZERO, _ONE = np.array(0, np.int64), np.array(1, np.int64)


def _table(c: Call) -> tuple[Value, Value]:
    """The order of the sequences, and their lengths in this order."""
    return c["RankTable"], c.sequences("RankTable")


def _running(g: Builder, lengths: Value, step: Value) -> Value:
    """How many sequences have a step of this number."""
    made: Value = g.reduce("ReduceSum", g.cast(g.Greater(lengths, step), np.int64), None, True)
    return made


def _single(c: Call, slot: str) -> Value | None:
    """The lengths of an input that has one level of sequences; None if it has none."""
    found = c.lengths(slot)
    need(len(found) < 2, f"its input {slot} has nested sequences")
    return found[0] if found else None


@exports("lod_rank_table")
def lod_rank_table(c: Call) -> None:
    """``TopK`` of all lengths: of equal ones the first comes first."""
    lengths = c.lengths("X")
    need(len(lengths) > c.attr("level"), "its input has no sequences of that level")
    chosen = lengths[c.attr("level")]
    ordered, order = c.g.TopK(chosen, c.g.Shape(chosen), axis=0, outputs=2)
    c.set("Out", order, lengths=[ordered])


@exports("max_sequence_len")
def max_sequence_len(c: Call) -> None:
    """The length of the first sequence."""
    c.set("Out", c.g.Slice(_table(c)[1], [0], [1]), lengths=())


@exports("lod_tensor_to_array", opset=14, without="nested sequences")
def lod_tensor_to_array(c: Call) -> None:
    """``Loop`` over the steps: the rows of the sequences that have this step."""
    g, (order, lengths) = c.g, _table(c)
    own = _single(c, "X")
    need(own is not None, "its input has no sequences")
    starts = g.Gather(Rows(g, own or "").starts, order)
    dtype, inner = onnx_type(c.dtype("X")), g.inner()
    names = [inner.unique(f"{g.origin[0]}/{name}") for name in ("step", "going", "array")]
    step, going, array = names
    rows = inner.Compress(inner.Add(starts, step), inner.Greater(lengths, step), axis=0)
    longer = inner.SequenceInsert(array, inner.Gather(c["X"], rows))
    body = helper.make_graph(
        [*inner.nodes, helper.make_node("Identity", [going], [again := inner.unique(going)])],
        "step",
        [
            helper.make_tensor_value_info(step, onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info(going, onnx.TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info(array, dtype, None),
        ],
        [
            helper.make_tensor_value_info(again, onnx.TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info(longer, dtype, None),
        ],
    )  # fmt: skip
    count = g.Squeeze(g.Slice(lengths, [0], [1]), [0])
    c.set("Out", g.Loop(count, None, g.SequenceEmpty(dtype=dtype), body=body), lengths=())


@exports("array_to_lod_tensor")
def array_to_lod_tensor(c: Call) -> None:
    """``ConcatFromSequence``, and its rows sequence by sequence."""
    g, (order, lengths) = c.g, _table(c)
    _, rank = g.TopK(order, g.Shape(order), axis=0, largest=0, outputs=2)
    rows = Rows(g, g.Gather(lengths, rank))
    steps = g.Unsqueeze(g.Range(_ZERO, rows.longest, _ONE), [1])
    running = g.cast(g.Greater(g.Unsqueeze(lengths, [0]), steps), np.int64)
    begins = g.CumSum(g.reduce("ReduceSum", running, [1]), _ZERO, exclusive=1)
    index = g.Add(g.Gather(begins, rows.places), g.Gather(rank, rows.owners))
    flat = g.ConcatFromSequence(c["X"], axis=0)
    c.set("Out", g.Gather(flat, index), lengths=[rows.lengths])


@exports("shrink_rnn_memory", without="nested sequences")
def shrink_rnn_memory(c: Call) -> None:
    """The first rows, or sequences: as many as have this step."""
    g, own = c.g, _single(c, "X")
    step = c.typed(c["I"], c.dtype("I"), np.int64)
    count = _running(g, _table(c)[1], step)
    if own is None:
        c.set("Out", g.Slice(c["X"], [0], count), lengths=())
        return
    kept = g.Slice(own, [0], count)
    end = g.reduce("ReduceSum", kept, None, True)
    c.set("Out", g.Slice(c["X"], [0], end), lengths=[kept])


@exports("reorder_lod_tensor_by_rank", without="nested sequences")
def reorder_lod_tensor_by_rank(c: Call) -> None:
    """Rows, or sequences, in the order of the table."""
    g, own, (order, _) = c.g, _single(c, "X"), _table(c)
    if own is None:
        c.set("Out", g.Gather(c["X"], order), lengths=())
        return
    lengths = g.Gather(own, order)
    index = spread(g, g.Gather(Rows(g, own).starts, order), lengths)
    c.set("Out", g.Gather(c["X"], index), lengths=[lengths])
