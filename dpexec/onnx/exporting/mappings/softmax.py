"""``softmax``."""

from __future__ import annotations

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports


@exports("softmax")
def softmax(c: Call) -> None:
    """Along one axis, the last one by default."""
    axis = c.attr("axis")
    c.set("Out", c.g.Softmax(c["X"], axis=-1 if axis is None else axis))
