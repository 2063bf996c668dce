"""``gather_tree``: the ids of beams, read back from their last step."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports


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
