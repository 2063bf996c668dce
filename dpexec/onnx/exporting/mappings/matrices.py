"""Diagonals of matrices, products of vectors of three numbers, correlations of rows."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need


@exports("trace", without="matrices of open sizes")
def trace(c: Call) -> None:
    """The sum of the elements where a constant has ones."""
    g, rank = c.g, c.rank("Input")
    axes = [c.attr(name) % rank for name in ("dim1", "dim2")]
    rows, columns = (c.shape("Input")[axis] for axis in axes)
    need(min(rows, columns) > 0, "the sizes of its matrices are open")
    order = [axis for axis in range(rank) if axis not in axes] + axes
    matrices = g.Transpose(c["Input"], perm=order)
    chosen = c.number(np.eye(rows, columns, c.attr("offset")), "Input")
    made = g.reduce("ReduceSum", g.Mul(matrices, chosen), [rank - 2, rank - 1])
    c.set("Out", g.reshape(made, 1) if rank == 2 else made)


@exports("cross", without="an axis of 3 that is open")
def cross(c: Call) -> None:
    """Products of each number with the one behind it, both ways."""
    g, shape, axis = c.g, c.shape("X"), c.attr("dim")
    if not -len(shape) <= axis < len(shape):  # fluid's default: the first one of 3
        need(3 in shape, "it has no dimension of 3")
        axis = shape.index(3)

    def turned(slot: str, by: int) -> str:
        made: str = g.Gather(c[slot], np.roll(np.arange(3), -by), axis=axis)
        return made

    one, other = (g.Mul(turned("X", k), turned("Y", 3 - k)) for k in (1, 2))
    c.set("Out", g.Sub(one, other))


@exports("conv_shift", without="open widths")
def conv_shift(c: Call) -> None:
    """The columns that each one meets, times the row's filter."""
    g, width, reach = c.g, c.shape("X")[1], c.shape("Y")[1]
    need(width > 0 and reach > 0, "its width is open")
    places = (np.arange(width)[:, None] + np.arange(reach)[None] - reach // 2) % width
    meets = g.Gather(c["X"], places, axis=1)
    c.set("Out", g.Squeeze(g.MatMul(meets, g.Unsqueeze(c["Y"], [2])), [2]))
