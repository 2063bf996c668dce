"""Operators on two tensors with fluid's broadcasting: the smaller one is laid in from ``axis``."""

from __future__ import annotations

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports

_SAME = {
    "elementwise_add": "Add",
    "elementwise_div": "Div",
    "elementwise_max": "Max",
    "elementwise_min": "Min",
    "elementwise_mul": "Mul",
    "elementwise_pow": "Pow",
    "elementwise_sub": "Sub",
    "equal": "Equal",
    "greater_equal": "GreaterOrEqual",
    "greater_than": "Greater",
    "less_equal": "LessOrEqual",
    "less_than": "Less",
}


def aligned(c: Call, axis: int) -> tuple[Value, Value]:
    """X and Y with shapes that ONNX broadcasts: ones behind the smaller one."""
    ranks = c.rank("X"), c.rank("Y")
    found = c["X"], c["Y"]
    if axis == -1 or ranks[0] == ranks[1]:
        return found
    small = int(ranks[1] < ranks[0])
    return (
        (found[0], _laid(c, "Y", max(ranks), axis)) if small
        else (_laid(c, "X", max(ranks), axis), found[1])
    )  # fmt: skip


def _laid(c: Call, slot: str, rank: int, axis: int) -> Value:
    shape, value = list(c.shape(slot)), c[slot]
    while shape and axis + len(shape) > rank:  # ones at the end do not count
        shape.pop()
        value = c.g.Squeeze(value, [len(shape)])
    behind = list(range(len(shape), rank - axis))
    return c.g.Unsqueeze(value, behind) if behind else value


@exports(*_SAME)
def elementwise(c: Call) -> None:
    """The operator of the same meaning, after the shapes are made alike."""
    axis = c.attr("axis")
    x, y = aligned(c, -1 if axis is None else axis)
    c.set("Out", c.g.node(_SAME[c.op.type], x, y))


@exports("not_equal")
def not_equal(c: Call) -> None:
    """Not equal; real numbers that differ from themselves are NaN."""
    if c.op.inputs["X"] == c.op.inputs["Y"] and c.dtype("X").kind == "f":
        c.set("Out", c.g.IsNaN(c["X"]))
        return
    x, y = aligned(c, c.attr("axis"))
    c.set("Out", c.g.Not(c.g.Equal(x, y)))
