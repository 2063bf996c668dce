"""Recurrent nets that include the product with their input weights."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.recurrent_nets import Unit, cells, write_gru, write_lstm


@exports("fusion_lstm")
def fusion_lstm(c: Call) -> None:
    """A product, and ``LSTM``."""
    x, size = c.g.MatMul(c["X"], c["WeightX"]), cells(c, "WeightH", 4)
    write_lstm(Unit(c, "X", x, c["WeightH"], c["Bias"], size, "WeightH"))


@exports("fused_embedding_fc_lstm")
def fused_embedding_fc_lstm(c: Call) -> None:
    """Rows of a table that has the bias of the gates in it already, and ``LSTM``."""
    g, size = c.g, cells(c, "WeightH", 4)
    ids = c.typed(c["Ids"], c.dtype("Ids"), np.int64)
    x = g.Gather(c["Embeddings"], g.reshape(ids, -1))
    bias = c.number(np.zeros((1, 4 * size)), "WeightH")
    if c.attr("use_peepholes"):
        bias = g.Concat(bias, g.Slice(c["Bias"], [4 * size], [7 * size], [1]), axis=1)
    write_lstm(Unit(c, "Ids", x, c["WeightH"], bias, size, "WeightH"))


@exports("fusion_gru", without="gates that are no sigmoids, and no activation")
def fusion_gru(c: Call) -> None:
    """A product, and ``GRU``."""
    x, size = c.g.MatMul(c["X"], c["WeightX"]), cells(c, "WeightH", 3)
    write_gru(Unit(c, "X", x, c["WeightH"], c.get("Bias"), size, "WeightH"))
