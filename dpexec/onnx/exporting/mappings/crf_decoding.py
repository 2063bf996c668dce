"""``crf_decoding``: the likeliest tags of sequences, by ``Scan`` to their ends and back."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from dpexec.onnx.exporting.builder import Value, onnx_type
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows

_BOOL, _LONG = onnx.TensorProto.BOOL, onnx.TensorProto.INT64


def _forward(c: Call, emission: Value, there: Value) -> tuple[Value, Value]:
    """The scores of the last tags, and for each step and tag the best one before it."""
    g, inner, dtype = c.g, c.g.inner(), onnx_type(c.dtype("Emission"))
    first, between = (g.Slice(c["Transition"], [k], [end]) for k, end in ((0, 1), (2, 2**31)))
    names = [inner.unique(f"{g.origin[0]}/{n}") for n in ("scores", "emission", "there", "begins")]
    scores, now, here, begins = names
    ways = inner.Add(inner.Unsqueeze(scores, [2]), inner.Unsqueeze(between, [0]))
    better = inner.Where(begins, scores, inner.reduce("ReduceMax", ways, [1]))
    after = inner.Where(here, inner.Add(better, now), scores)
    came = inner.ArgMax(ways, axis=1, keepdims=0)
    body = helper.make_graph(
        inner.nodes, "step",
        [
            helper.make_tensor_value_info(scores, dtype, [None, None]),
            helper.make_tensor_value_info(now, dtype, [None, None]),
            helper.make_tensor_value_info(here, _BOOL, [None, 1]),
            helper.make_tensor_value_info(begins, _BOOL, [1]),
        ],
        [
            helper.make_tensor_value_info(after, dtype, [None, None]),
            helper.make_tensor_value_info(came, _LONG, [None, None]),
        ],
    )  # fmt: skip
    steps = g.size(emission, 0)
    numbers = g.Range(np.array(0, np.int64), g.Squeeze(steps, [0]), np.array(1, np.int64))
    begin = g.Unsqueeze(g.Equal(numbers, np.array(0, np.int64)), [1])
    initial = g.Expand(first, g.Concat(g.size(emission, 1), [1], axis=0))
    made: tuple[Value, Value] = g.Scan(
        initial, emission, there, begin, body=body, num_scan_inputs=3, outputs=2
    )
    return made


def _back(c: Call, last: Value, came: Value, there: Value) -> Value:
    """The tags of all steps, from the last one on."""
    g, inner = c.g, c.g.inner()
    tag, ways, here = (inner.unique(f"{g.origin[0]}/{n}") for n in ("tag", "ways", "here"))
    column = inner.Unsqueeze(tag, [1])
    before = inner.Squeeze(inner.GatherElements(ways, column, axis=1), [1])
    after = inner.Where(inner.Squeeze(here, [1]), before, tag)
    shown = inner.Identity(tag)
    body = helper.make_graph(
        inner.nodes, "step",
        [
            helper.make_tensor_value_info(tag, _LONG, [None]),
            helper.make_tensor_value_info(ways, _LONG, [None, None]),
            helper.make_tensor_value_info(here, _BOOL, [None, 1]),
        ],
        [
            helper.make_tensor_value_info(after, _LONG, [None]),
            helper.make_tensor_value_info(shown, _LONG, [None]),
        ],
    )  # fmt: skip
    _, tags = g.Scan(
        last, came, there, body=body, num_scan_inputs=2, outputs=2,
        scan_input_directions=[1, 1], scan_output_directions=[1],
    )  # fmt: skip
    found: Value = tags
    return found


@exports("crf_decoding", without="padded sequences")
def crf_decoding(c: Call) -> None:
    """The best way to each tag, step by step, then back from the best last one."""
    g = c.g
    need(c.get("Length") is None, "its sequences are padded")
    rows = Rows(g, c.sequences("Emission"))
    emission = rows.padded(c["Emission"], 2, None, time_first=True)
    there = g.Unsqueeze(rows.grid(time_first=True)[1], [2])
    scores, came = _forward(c, emission, there)
    scores = g.Add(scores, g.Slice(c["Transition"], [1], [2]))
    tags = _back(c, g.ArgMax(scores, axis=1, keepdims=0), came, there)
    found = g.reshape(rows.taken_out(tags, time_first=True), -1, 1)
    if c.get("Label") is not None:
        label = c.typed(c["Label"], c.dtype("Label"), np.int64)
        found = g.cast(g.Equal(found, g.reshape(label, -1, 1)), np.int64)
    c.set("ViterbiPath", c.typed(found, np.int64, c.dtype("ViterbiPath")))
