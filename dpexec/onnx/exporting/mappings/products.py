"""Matrix products: ``mul``, ``fc``, ``matmul``, ``bmm``, ``addmm``, ``kron``."""

from __future__ import annotations

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.activations import activated
from dpexec.onnx.exporting.refusals import need


def flat(c: Call, slot: str, columns: int) -> Value:
    """A matrix: the first ``columns`` dimensions are its rows."""
    shape = c.shape(slot)
    if len(shape) == 2 and columns == 1:
        return c[slot]
    behind = 1
    for dim in shape[columns:]:
        behind = -1 if dim < 0 or behind < 0 else behind * dim
    if behind > 0:
        return c.g.reshape(c[slot], -1, behind)
    return c.g.Flatten(c[slot], axis=columns)


def unflat(c: Call, made: Value, slot: str, columns: int) -> Value:
    """A product with the first ``columns`` dimensions of an input back in their places."""
    shape = c.shape(slot)[:columns]
    if columns == 1:
        return made
    width = c.shape("Out")[-1]
    if sum(dim < 0 for dim in (*shape, width)) <= 1:
        return c.g.reshape(made, *shape, width)
    front = c.g.Slice(c.g.Shape(c[slot]), [0], [columns])
    return c.g.Reshape(made, c.g.Concat(front, c.g.ints(width), axis=0))


@exports("mul", without="8 bits of MKL-DNN")
def mul(c: Call) -> None:
    """A product of two matrices to which X and Y are flattened."""
    _needs_float(c, [c.attr("scale_x"), *c.attr("scale_y"), c.attr("scale_out")])
    rows, columns = c.attr("x_num_col_dims"), c.attr("y_num_col_dims")
    if (c.rank("X"), c.rank("Y"), columns) == (rows + 1, 2, 1):
        return c.set("Out", c.g.MatMul(c["X"], c["Y"]))
    made = c.g.MatMul(flat(c, "X", rows), flat(c, "Y", columns))
    if c.rank("Y") > columns + 1:
        front = c.g.Slice(c.g.Shape(c["X"]), [0], [rows])
        behind = c.g.Slice(c.g.Shape(c["Y"]), [columns], [c.rank("Y")])
        c.set("Out", c.g.Reshape(made, c.g.Concat(front, behind, axis=0)))
    else:
        c.set("Out", unflat(c, made, "X", rows))


@exports("matmul", without="several heads and 8 bits of MKL-DNN")
def matmul(c: Call) -> None:
    """A product of matrices, or of stacks of them, times ``alpha``."""
    need(c.attr("head_number") in (None, 1), "it has several heads")
    scales = [c.attr(name) for name in ("Scale_x", "Scale_y", "Scale_out")]
    _needs_float(c, scales)
    found = []
    for slot, transposed in (("X", c.attr("transpose_X")), ("Y", c.attr("transpose_Y"))):
        rank, value = c.rank(slot), c[slot]
        if transposed and rank > 1:
            value = c.g.Transpose(value, perm=[*range(rank - 2), rank - 1, rank - 2])
        found.append(_vector(c, slot, value, transposed) if rank == 1 else value)
    made = c.g.MatMul(*found)
    if c.attr("alpha") not in (None, 1.0):
        made = c.g.Mul(made, c.number(c.attr("alpha")))
    if c.rank("X") == 1 or c.rank("Y") == 1:
        need(sum(dim < 0 for dim in c.shape("Out")) < 2, "it multiplies vectors of open sizes")
        made = c.g.reshape(made, *c.shape("Out"))
    c.set("Out", made)


def _vector(c: Call, slot: str, value: Value, transposed: bool) -> Value:
    """A vector as a row if it is X, as a column if it is Y; turned if it is to be transposed."""
    row = (slot == "X") != bool(transposed)
    return c.g.reshape(value, 1, -1) if row else c.g.reshape(value, -1, 1)


def _needs_float(c: Call, scales: list[float]) -> None:
    need(c.dtype("X").kind == "f", f"its input is {c.dtype('X')}")
    need(all(scale in (None, 1.0) for scale in scales), "it has scales for 8 bits")


@exports("bmm")
def bmm(c: Call) -> None:
    """A product of stacks of matrices."""
    c.set("Out", c.g.MatMul(c["X"], c["Y"]))


@exports("fc", without="8 bits of MKL-DNN")
def fc(c: Call) -> None:
    """``mul``, a bias and an activation in one; padding of the weights is cut off."""
    need(c.dtype("Input").kind == "f", f"its input is {c.dtype('Input')}")
    rows, weight = c.attr("in_num_col_dims"), c["W"]
    if c.attr("padding_weights"):
        weight = c.g.Slice(weight, [0, 0], [-4, -4], [0, 1])
    made = c.g.MatMul(flat(c, "Input", rows), weight)
    made = made if c.get("Bias") is None else c.g.Add(made, c.g.reshape(c["Bias"], -1))
    made = activated(c, c.attr("activation_type") or "", made, "Input")
    c.set("Out", unflat(c, made, "Input", rows))


@exports("addmm")
def addmm(c: Call) -> None:
    """A part of the input and a part of a product."""
    g = c.g
    product = g.Mul(g.MatMul(c["X"], c["Y"]), c.number(c.attr("Alpha")))
    c.set("Out", g.Add(g.Mul(c["Input"], c.number(c.attr("Beta"))), product))


@exports("kron", without="open sizes")
def kron(c: Call) -> None:
    """A product of all pairs of numbers, as blocks."""
    shapes = [list(c.shape(slot)) for slot in ("X", "Y")]
    need(min(map(min, shapes)) > 0, "its sizes are open")
    rank = max(map(len, shapes))
    x, y = ([1] * (rank - len(shape)) + shape for shape in shapes)
    one = c.g.reshape(c["X"], *(n for pair in zip(x, [1] * rank, strict=True) for n in pair))
    other = c.g.reshape(c["Y"], *(n for pair in zip([1] * rank, y, strict=True) for n in pair))
    size = [a * b for a, b in zip(x, y, strict=True)]
    c.set("Out", c.g.reshape(c.g.Mul(one, other), *size))
