"""Quantizers: numbers rounded to integers of some bits, and back."""

from __future__ import annotations

import numpy as np

from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need


def _levels(c: Call) -> float:
    return float(2 ** (c.attr("bit_length") - 1) - 1)


def _quantized(c: Call, scale: Value, unit: Value | None) -> Value:
    """The input as integers, and these times ``unit``; None for the integers as fractions.

    Integers of 8 bits come and go by ``QuantizeLinear`` and ``DequantizeLinear``, with the limits
    of fluid, which are symmetric.
    """
    g, levels = c.g, _levels(c)
    scale = nonzero(c, g.reshape(scale, 1))
    limited = g.Max(g.Min(c["X"], scale), g.Neg(scale))
    if levels == 127:
        step = _scalar(c, g.Div(scale, c.number(levels)))
        whole = g.QuantizeLinear(limited, step, np.array(0, np.int8))
        back = c.number(1.0) if unit is None else _scalar(c, unit)
        made: Value = g.DequantizeLinear(whole, back, np.array(0, np.int8))
        return made
    whole = g.Round(g.Div(g.Mul(limited, c.number(levels)), scale))
    return whole if unit is None else g.Mul(whole, unit)


def nonzero(c: Call, scale: Value) -> Value:
    """Scales that can divide: what is 0 has no integers but 0."""
    known = c.g.arrays.get(scale)
    if known is not None and known.all():
        return scale
    made: Value = c.g.Where(c.g.Equal(scale, c.number(0.0)), c.number(1.0), scale)
    return made


def _scalar(c: Call, value: Value) -> Value:
    made: Value = c.g.Squeeze(c.g.reshape(value, 1), [0])
    return made


@exports("fake_quantize_abs_max")
def fake_quantize_abs_max(c: Call) -> None:
    """By the greatest size of the input."""
    scale = c.g.reshape(c.g.reduce("ReduceMax", c.g.Abs(c["X"]), None), 1)
    c.set("Out", _quantized(c, scale, None))
    c.set("OutScale", scale)


@exports("fake_quantize_moving_average_abs_max", "fake_quantize_range_abs_max", without="training")
def fake_quantize_moving_average_abs_max(c: Call) -> None:
    """By the scale that training found."""
    need(c.attr("is_test"), "it learns its scale; set is_test")
    c.set("Out", _quantized(c, c["InScale"], None))
    c.set("OutScale", c["InScale"])


@exports("fake_quantize_dequantize_moving_average_abs_max", without="training")
def fake_quantize_dequantize(c: Call) -> None:
    """There and back by the scale that training found."""
    need(c.attr("is_test"), "it learns its scale; set is_test")
    unit = c.g.Div(c["InScale"], c.number(_levels(c)))
    c.set("Out", _quantized(c, c["InScale"], unit))
    c.set("OutScale", c["InScale"])


@exports("moving_average_abs_max_scale")
def moving_average_abs_max_scale(c: Call) -> None:
    """Nothing but the input."""
    c.set("Out", c["X"])


@exports("fake_channel_wise_quantize_abs_max")
def fake_channel_wise_quantize_abs_max(c: Call) -> None:
    """Each channel by its greatest size."""
    g, levels, rank = c.g, _levels(c), c.rank("X")
    scale = g.reduce("ReduceMax", g.Abs(c["X"]), list(range(1, rank)), True)
    whole = g.Round(g.Div(g.Mul(c["X"], c.number(levels)), nonzero(c, scale)))
    c.set("Out", whole)
    c.set("OutScale", g.reshape(scale, -1))


@exports("fake_dequantize_max_abs")
def fake_dequantize_max_abs(c: Call) -> None:
    """Times the scale by the greatest integer."""
    step = c.g.Div(c["Scale"], c.number(c.attr("max_range")))
    c.set("Out", c.g.Mul(c["X"], c.g.reshape(step, 1)))


@exports("fake_channel_wise_dequantize_max_abs")
def fake_channel_wise_dequantize_max_abs(c: Call) -> None:
    """Times a scale for each channel, and one for all if there are two."""
    g, scales, rank = c.g, c.all("Scales"), c.rank("X")
    axis = 0 if len(scales) == 1 else 1
    shape = [*[1] * axis, -1, *[1] * (rank - 1 - axis)]
    made, bits = c["X"], list(c.attr("quant_bits"))
    shapes = [shape, [1] * rank]
    for scale, count, each in zip(scales, bits, shapes, strict=False):
        step = g.Div(scale, c.number(2.0 ** (count - 1) - 1))
        made = g.Mul(made, g.reshape(step, *each))
    c.set("Out", made)


@exports("dequantize_abs_max")
def dequantize_abs_max(c: Call) -> None:
    """Integers times the scale by the greatest one."""
    step = c.g.Div(c["Scale"], c.number(c.attr("max_range"), "Out"))
    c.set("Out", c.g.Mul(c.g.cast(c["X"], c.dtype("Out")), c.g.reshape(step, 1)))


def _in_range(c: Call, x: Value, dtype: np.dtype) -> Value:
    """Numbers rounded to integers of a type, not beyond its limits."""
    limits = (np.array(end, np.float32) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    return c.g.cast(c.g.Clip(c.g.Round(x), *limits), dtype)


@exports("quantize")
def quantize(c: Call) -> None:
    """Rounded products."""
    x = c.g.Mul(c["Input"], c.number(c.attr("Scale"), "Input"))
    x = c.typed(x, c.dtype("Input"), np.float32)
    c.set("Output", _in_range(c, x, c.dtype("Output")))


@exports("requantize")
def requantize(c: Call) -> None:
    """Rounded products with the ratio of both scales."""
    ratio = np.float32(c.attr("Scale_out")) / np.float32(c.attr("Scale_in"))
    x = c.g.Mul(c.g.cast(c["Input"], np.float32), np.array(ratio))
    c.set("Output", _in_range(c, x, c.dtype("Output")))


@exports("dequantize")
def dequantize(c: Call) -> None:
    """Integers times the inverse of the scale."""
    factor = np.array(1 / np.float32(c.attr("Scale")))
    c.set("Output", c.g.Mul(c.g.cast(c["Input"], np.float32), factor))


@exports("dequantize_log")
def dequantize_log(c: Call) -> None:
    """Numbers of a table, negative ones for negative bytes."""
    g, x = c.g, c.g.cast(c["X"], np.int64)
    below = g.Less(x, np.array(0, np.int64))
    places = g.Where(below, g.Add(x, np.array(128, np.int64)), x)
    found = g.Gather(g.reshape(c["Dict"], -1), places)
    c.set("Out", g.Where(below, g.Neg(found), found))
