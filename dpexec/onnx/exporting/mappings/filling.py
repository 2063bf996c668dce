"""Tensors that operators make: constants, ranges, shapes, copies and repetitions."""

from __future__ import annotations

import numpy as np

from dpexec.engine.core.dtypes import to_numpy
from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.reshape import vector
from dpexec.onnx.exporting.refusals import need


def filled(c: Call, shape: Value, value: float | str, dtype: np.dtype) -> Value:
    """A tensor of one number in a shape."""
    made: Value = c.g.Expand(c.g.constant(np.array(value).astype(dtype)), shape)
    return made


def _value(c: Call) -> float | int:
    text = c.attr("str_value")
    if not text:
        return float(c.attr("value"))
    whole = np.dtype(to_numpy(c.attr("dtype"))).kind in "iu"
    return int(float(text)) if whole and "." in text else int(text) if whole else float(text)


@exports("fill")
def fill(c: Call) -> None:
    """A constant of the model; conversions to integers truncate."""
    value = np.asarray(c.attr("value"), np.float32).astype(to_numpy(c.attr("dtype")))
    c.set("Out", c.g.Identity(value.reshape(tuple(c.attr("shape")))))


@exports("fill_constant")
def fill_constant(c: Call) -> None:
    """A constant of the model, or one number in a shape that is computed."""
    dtype = to_numpy(c.attr("dtype"))
    shape = vector(c, "ShapeTensor", "ShapeTensorList", "shape")
    if c.get("ValueTensor") is not None:
        size = c.g.ints(*c.attr("shape")) if shape is None else shape
        c.set("Out", c.g.Expand(c.g.reshape(c["ValueTensor"], 1), size))
    elif shape is not None:
        c.set("Out", filled(c, shape, _value(c), dtype))
    else:
        with np.errstate(all="ignore"):
            c.set("Out", c.g.constant(np.full(c.attr("shape"), _value(c)).astype(dtype)))


@exports("fill_constant_batch_size_like")
def fill_constant_batch_size_like(c: Call) -> None:
    """One number in a shape, of which one size is the input's."""
    shape, g = list(c.attr("shape")), c.g
    place, source = c.attr("output_dim_idx"), c.attr("input_dim_idx")
    lengths = c.lengths("Input")
    if lengths and source == 0:
        size = g.Shape(lengths[0])
    else:
        size = g.size(c["Input"], source)
    whole = g.Concat(
        *(part for part in (
            g.ints(*shape[:place]) if shape[:place] else None,
            size,
            g.ints(*shape[place + 1 :]) if shape[place + 1 :] else None,
        ) if part is not None), axis=0,
    )  # fmt: skip
    c.set("Out", filled(c, whole, _value(c), to_numpy(c.attr("dtype"))), lengths=())


@exports("fill_zeros_like", "fill_zeros_like2", "fill_any_like")
def fill_like(c: Call) -> None:
    """One number in the shape of the input."""
    value = c.attr("value") if c.op.type == "fill_any_like" else 0
    c.set("Out", filled(c, c.g.Shape(c["X"]), value, c.dtype("Out")))


@exports("assign", "rnn_memory_helper", without="arrays of tensors and SelectedRows")
def assign(c: Call) -> None:
    """The value itself."""
    need(c.spec("X").kind.name == "LOD_TENSOR", "its input is no tensor")
    c.set("Out", c["X"])


@exports("assign_value")
def assign_value(c: Call) -> None:
    """A constant of the model."""
    dtype = to_numpy(c.attr("dtype"))
    for name in ("fp32_values", "int32_values", "int64_values", "bool_values"):
        values = c.attr(name)
        if values:
            c.set("Out", c.g.constant(np.array(values, dtype).reshape(c.attr("shape"))))
            return
    c.set("Out", c.g.constant(np.zeros(c.attr("shape"), dtype)))


@exports("eye")
def eye(c: Call) -> None:
    """A constant of the model."""
    columns = c.attr("num_columns")
    columns = c.attr("num_rows") if columns in (-1, None) else columns
    c.set("Out", c.g.constant(np.eye(c.attr("num_rows"), columns, dtype=c.dtype("Out"))))


@exports("shape")
def shape(c: Call) -> None:
    """``Shape``."""
    whole = c.g.Shape(c.g.before_cast(c["Input"]))
    c.set("Out", c.g.cast(whole, c.dtype("Out")), lengths=())


@exports("size")
def size(c: Call) -> None:
    """``Size``."""
    c.set("Out", c.g.reshape(c.g.Size(c["Input"]), 1), lengths=())


@exports("range")
def range(c: Call) -> None:
    """``Range``."""
    slots = ("Start", "End", "Step")
    c.set("Out", c.g.Range(*(c.g.Squeeze(c[slot], [0]) for slot in slots)))


@exports("expand")
def expand(c: Call) -> None:
    """``Tile``."""
    times = vector(c, "ExpandTimes", "expand_times_tensor", "expand_times")
    c.set("Out", c.g.Tile(c["X"], list(c.attr("expand_times")) if times is None else times))


@exports("expand_as")
def expand_as(c: Call) -> None:
    """``Tile`` to the shape of another tensor."""
    times = c.g.Div(c.g.Shape(c["target_tensor"]), c.g.Shape(c["X"]))
    c.set("Out", c.g.Tile(c["X"], times))


@exports("diag")
def diag(c: Call) -> None:
    """A matrix with a vector on its diagonal."""
    g, x = c.g, c["Diagonal"]
    count = g.Shape(x)
    places = g.Range(np.array(0, np.int64), g.Squeeze(count, [0]), np.array(1, np.int64))
    on = g.Equal(g.Unsqueeze(places, [0]), g.Unsqueeze(places, [1]))
    c.set("Out", g.Where(on, x, c.number(0, "Diagonal")))


@exports("tril_triu", opset=14)
def tril_triu(c: Call) -> None:
    """``Trilu``."""
    diagonal = np.array(c.attr("diagonal"), np.int64)
    c.set("Out", c.g.Trilu(c["X"], diagonal, upper=int(not c.attr("lower"))))


@exports("meshgrid")
def meshgrid(c: Call) -> None:
    """``Expand`` of each vector to the shape of all."""
    g, values = c.g, c.all("X")
    whole = g.Concat(*(g.reshape(g.Shape(x), -1) for x in values), axis=0)
    count = len(values)
    made = [
        g.Expand(g.reshape(x, *[1] * i, -1, *[1] * (count - 1 - i)), whole)
        for i, x in enumerate(values)
    ]
    c.set("Out", made)


@exports("pad")
def pad(c: Call) -> None:
    """``Pad`` with a number."""
    pads = list(c.attr("paddings"))
    c.set("Out", c.g.Pad(c["X"], pads[::2] + pads[1::2], c.number(c.attr("pad_value"))))


@exports("pad2d")
def pad2d(c: Call) -> None:
    """``Pad`` around images, with a number, their edges or their reflection."""
    g, last = c.g, c.attr("data_format") == "NHWC"
    pads = c.get("Paddings")
    modes = {"constant": "constant", "reflect": "reflect", "edge": "edge"}
    mode = modes[c.attr("mode")]
    value = c.number(c.attr("pad_value")) if mode == "constant" else None
    zeros = g.ints(0)
    if pads is None:
        given = [g.ints(n) for n in c.attr("paddings")]
    else:
        given = g.Split(c.typed(pads, c.dtype("Paddings"), np.int64), [1] * 4, axis=0, outputs=4)
    top, bottom, left, right = given
    front, behind = ([zeros], [zeros]) if last else ([zeros, zeros], [])
    whole = g.Concat(*front, top, left, *behind, *front, bottom, right, *behind, axis=0)
    c.set("Out", g.Pad(c["X"], whole, value, mode=mode))


@exports("pad_constant_like")
def pad_constant_like(c: Call) -> None:
    """``Pad`` behind, to the shape of X."""
    g = c.g
    missing = g.Sub(g.Shape(c["X"]), g.Shape(c["Y"]))
    whole = g.Concat(g.ints(*[0] * c.rank("Y")), missing, axis=0)
    c.set("Out", g.Pad(c["Y"], whole, c.number(c.attr("pad_value"), "Y")))


@exports("linspace", constants="Num")
def linspace(c: Call) -> None:
    """Numbers at equal distances."""
    g, count = c.g, int(c.constant("Num").item())
    shares = np.arange(count) / max(count - 1, 1)
    way = g.Sub(c["Stop"], c["Start"])
    c.set("Out", g.Add(c["Start"], g.Mul(way, c.number(shares, "Start"))))


@exports("is_empty")
def is_empty(c: Call) -> None:
    """Whether there are no numbers."""
    hit = c.g.Equal(c.g.Size(c["X"]), np.array(0, np.int64))
    c.set("Out", c.g.reshape(hit, 1), lengths=())


@exports("print")
def print_(c: Call) -> None:
    """The value itself: nothing is printed."""
    c.set("Out", c["In"])
