"""``sequence_pool``: one row for every sequence."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.sequences import Rows


@exports("sequence_pool")
def sequence_pool(c: Call) -> None:
    """Reductions of padded sequences, or their first or last rows."""
    g, rank, kind = c.g, c.rank("X"), c.attr("pooltype")
    lengths = c.sequences("X")
    rows = Rows(g, lengths)
    empty = g.Equal(lengths, np.array(0, np.int64))
    behind = list(range(1, rank))
    count = g.Max(lengths, np.array(1, np.int64))
    if kind in ("FIRST", "LAST"):
        index = rows.starts if kind == "FIRST" else g.Sub(rows.ends, np.array(1, np.int64))
        made = g.Gather(c["X"], g.Where(empty, np.array(0, np.int64), index))
    elif kind == "MAX":
        made = g.reduce("ReduceMax", rows.padded(c["X"], rank, c.number(-np.inf)), [1])
    else:
        made = g.reduce("ReduceSum", rows.padded(c["X"], rank, c.number(0.0)), [1])
        divisor = g.cast(count, c.dtype("X"))
        divisor = g.Sqrt(divisor) if kind == "SQRT" else divisor
        if kind != "SUM":
            made = g.Div(made, g.Unsqueeze(divisor, behind) if behind else divisor)
    empty = g.Unsqueeze(empty, behind) if behind else empty
    made = g.Where(empty, c.number(c.attr("pad_value")), made)
    c.set("Out", made, c.lengths("X")[:-1])
