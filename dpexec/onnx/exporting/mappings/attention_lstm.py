"""``attention_lstm``: an LSTM that reads a mean of all rows of its sequence at each step."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Builder, Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.recurrent_nets import Unit, activation, kinds, scanned, zeros
from dpexec.onnx.exporting.refusals import need


@exports("attention_lstm", without="open widths")
def attention_lstm(c: Call) -> None:
    """``Scan`` over the steps; each one weighs all rows of its sequence."""
    g, width, size = c.g, c.shape("X")[1], c.shape("LSTMWeight")[1] // 4
    need(width > 0 and size > 0, "its width is open")
    unit = Unit(c, "X", c["X"], c["LSTMWeight"], c["LSTMBias"], size, "X")
    rows, end = unit.rows, np.iinfo(np.int64).max
    attention = [
        g.Slice(c["AttentionWeight"], [a], [b], [0]) for a, b in ((0, width), (width, end))
    ]
    of_rows = g.MatMul(c["X"], attention[0])
    shift = c.get("AttentionBias")
    of_rows = of_rows if shift is None else g.Add(of_rows, g.reshape(shift, -1))
    padded = rows.padded(c["X"], 2, None)  # (sequences, steps, width)
    scores = rows.padded(of_rows, 2, None)
    there = g.Unsqueeze(rows.grid()[1], [2])
    weights = [g.Slice(c["LSTMWeight"], [a], [b], [0]) for a, b in ((0, size), (size, end))]
    gate, state, candidate = kinds(c)

    def seen(inner: Builder, cell: Value) -> Value:
        added = inner.Unsqueeze(inner.MatMul(cell, attention[1]), [1])
        found = _scaled(c, inner, inner.Relu(inner.Add(scores, added)))
        share = inner.Softmax(inner.Where(there, found, c.number(-np.inf)), axis=1)
        # A step behind the end of a sequence is dropped, also where it has no rows at all.
        return inner.reduce("ReduceSum", inner.Mul(share, padded), [1])

    def step(inner: Builder, states: list[Value], x: Value) -> list[Value]:
        output, cell = states
        gates = inner.MatMul(seen(inner, cell), weights[1])
        gates = inner.Add(inner.Add(gates, inner.MatMul(output, weights[0])), c["LSTMBias"])
        kept, taken, shown, new = inner.Split(gates, [size] * 4, axis=1, outputs=4)
        kept, taken, shown = (activation(inner, gate, each) for each in (kept, taken, shown))
        new = activation(inner, candidate, new)
        cell = inner.Add(inner.Mul(kept, cell), inner.Mul(taken, new))
        return [inner.Mul(activation(inner, state, cell), shown), cell]

    states = [c.get("H0") or zeros(unit, rows, size), c["C0"]]
    hidden, cell = scanned(unit, rows, c["X"], states, step)
    c.set("AttentionedX", of_rows)
    c.set("Hidden", hidden)
    c.set("Cell", cell)


def _scaled(c: Call, g: Builder, scores: Value) -> Value:
    """Scores times a number, plus a number, if there are any."""
    if c.get("AttentionScalar") is None:
        return scores
    made: Value = g.Mul(scores, g.reshape(c["AttentionScalar"], -1))
    if c.get("AttentionScalarBias") is not None:
        made = g.Add(made, g.reshape(c["AttentionScalarBias"], -1))
    made = g.Relu(made)
    return made
