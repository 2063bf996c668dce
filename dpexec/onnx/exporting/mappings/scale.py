"""``scale``: a number times the input, plus a number."""

from __future__ import annotations

from dpexec.engine.ops._integers import converted
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports


@exports("scale")
def scale(c: Call) -> None:
    """``Mul`` and ``Add`` in the order of the attribute; what changes nothing is left out."""
    factor, bias, value = c.attr("scale"), c.attr("bias"), c["X"]
    tensor = c.get("ScaleTensor")
    after = c.attr("bias_after_scale")

    def number(value: float) -> str:
        return c.number(converted(c.dtype("X"), value))  # of integers as in Paddle: the low bits

    def plus(value: str) -> str:
        return c.g.Add(value, number(bias)) if bias else value

    value = value if after else plus(value)
    if tensor is not None:
        value = c.g.Mul(value, tensor)
    elif factor != 1:
        value = c.g.Mul(value, number(factor))
    value = plus(value) if after else value
    c.set("Out", value)
