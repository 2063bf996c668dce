"""``dropout`` in prediction."""

from __future__ import annotations

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need


@exports("dropout", without="training")
def dropout(c: Call) -> None:
    """Nothing if training makes the rest larger, else the part that training keeps."""
    need(c.attr("is_test"), "it draws random numbers; set is_test")
    if c.attr("dropout_implementation") == "upscale_in_train":
        c.set("Out", c["X"])
    else:
        c.set("Out", c.g.Mul(c["X"], c.number(1.0 - c.attr("dropout_prob"))))
