"""Shapes: ``reshape``, ``transpose``, ``squeeze``, ``unsqueeze``, ``flatten``, with XShape too."""

from __future__ import annotations

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports


@exports("transpose", "transpose2")
def transpose(c: Call) -> None:
    """Dimensions in another order."""
    c.set("Out", c.g.Transpose(c["X"], perm=list(c.attr("axis"))))
