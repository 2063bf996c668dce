"""Numbers of 8 bits as programs hold them: levels without sign, and products of them.

Where scales are known numbers, real numbers are rounded by ``quantize``, and convolutions and
products with known weights are those of quantized models: ``conv2d`` and ``fc`` with inputs of
uint8, which compute with integers. Levels with sign are held as these plus 128, so that what relu
leaves has the zero point 0. Other zero points of inputs go to the bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import as_element
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.convolutions import conv_settings
from dpexec.onnx.loading.values import Value

__all__ = [
    "ROUNDING",
    "Sides",
    "convolution_of_levels",
    "nearest",
    "product_of_levels",
    "real_of_levels",
    "rounded_to_levels",
]

Array = np.ndarray[Any, Any]

ROUNDING = 1.5 * 2**23
"""Numbers of single precision around it are integers, so that a sum with it is rounded."""
_OFFSET = {TensorProto.UINT8: 0, TensorProto.INT8: 128}


@dataclass(frozen=True)
class _Point:
    """A zero point.

    Args:
        number: as levels have it.
        offset: what levels are larger by than the model's numbers.
        element: the type of the model's numbers.
        signed: whether levels have a sign: those whose zero point is 0.
    """

    number: int
    offset: int
    element: int
    signed: bool

    def result(self, node: Node, var: Variable) -> Value:
        """Levels as an output of the node."""
        name = node.outputs[0] if node.outputs else ""
        if self.element == TensorProto.UINT8:
            return Value(name, None, var)
        return Value(name, None, None, element=self.element, levels=var, offset=self.offset)


def _point(node: Node, index: int) -> _Point | None:
    """A zero point of results; None if only a run tells it, or if there are several."""
    value, number = node.input(index), 0.0
    if value is None:
        element = node.attr("output_dtype", 0) or TensorProto.UINT8
    else:
        element, known = value.element or as_element(value.dtype), node.single(index)
        if known is None:
            return None
        number = known
    if element not in _OFFSET:
        return None
    signed = element == TensorProto.INT8 and number == 0
    offset = 0 if signed else _OFFSET[element]
    return _Point(int(number) + offset, offset, element, signed)


def _scale(node: Node, index: int) -> float | None:
    """A scale of all numbers; None if only a run tells it, or if there are several."""
    number = node.single(index) if node.input(index) is not None else None
    return number if number is not None and np.isfinite(1 / np.float32(number)) else None


def _levels(node: Node, index: int, point: int) -> tuple[Variable, int] | None:
    """A tensor as levels, and their zero point."""
    value = node.value(index)
    number = node.single(point) if node.input(point) is not None else 0.0
    if number is None or value.array is not None:
        return None
    if value.levels is not None:
        return value.levels, int(number) + value.offset
    return (node.var(index), int(number)) if value.dtype == VarType.UINT8 else None


def nearest(node: Node, x: Variable, point: float | Variable = 0.0) -> Variable:
    """The nearest integers to numbers to which ``ROUNDING`` was added, plus a zero point.

    Ties go to even integers; numbers beyond 2**22 are those of the end of any range of levels.
    """
    x = node.scaled(x, 1.0, -ROUNDING)
    if isinstance(point, float):
        return node.scaled(x, 1.0, point)
    return node.binary("elementwise_add", x, point)


def rounded_to_levels(node: Node, x: Variable, scale: int, point: int) -> Value | None:
    """Real numbers as levels; None if scale or zero point are not known, or have other types.

    Args:
        node: the node.
        x: the numbers.
        scale: position of the scale.
        point: position of the zero point.
    """
    unit, zero = _scale(node, scale), _point(node, point)
    if unit is None or zero is None or x.dtype != VarType.FP32 or node.value(scale).rank > 1:
        return None
    factor = float(1 / np.float32(unit))
    if zero.number:
        x, factor = nearest(node, node.scaled(x, factor, ROUNDING), float(zero.number)), 1.0
    attrs = {"Scale": factor, "is_negative_input": zero.signed}
    return zero.result(node, node.add("quantize", {"Input": x}, "Output", **attrs))


def real_of_levels(node: Node, index: int) -> Variable | None:
    """The real numbers of a tensor that is followed by its scale and zero point, or None."""
    found, unit = _levels(node, index, index + 2), _scale(node, index + 1)
    if found is None or unit is None or node.value(index + 1).dtype != VarType.FP32:
        return None
    x, zero = found
    if not zero:
        return node.add("dequantize", {"Input": x}, "Output", Scale=float(1 / np.float32(unit)))
    x = node.add("dequantize", {"Input": x}, "Output", Scale=1.0)
    return node.add("scale", {"X": x}, scale=unit, bias=-float(zero), bias_after_scale=False)


@dataclass(frozen=True)
class Sides:
    """Where a node has the parts of a product of levels: positions of inputs.

    Args:
        data: of the levels and their zero point.
        data_scale: of their scale; -1: they are integers minus a zero point.
        weight: of the weights and their zero points.
        weight_scale: of their scales; -1: as for the levels.
        bias: of a bias of integers; -1: there is none.
        out_scale: of the scale of the result, which its zero point follows; -1: real numbers.
        factor: what products are multiplied with.
    """

    data: tuple[int, int]
    data_scale: int
    weight: tuple[int, int]
    weight_scale: int
    bias: int = -1
    out_scale: int = -1
    factor: float = 1.0

    def has(self, node: Node, index: int) -> bool:
        """Whether a node has an input that it may lack."""
        return index >= 0 and node.input(index) is not None


@dataclass(frozen=True)
class _Factors:
    """Known numbers of a product.

    Args:
        x: the levels.
        zero: their zero point; None: only a run tells it.
        whole: weights minus their zero points, integers of 8 bits with sign.
        unit: what a level of the input stands for.
        units: what a level of the weights stands for, for each channel.
        bias: a number for each channel, as a multiple of the product of both.
    """

    x: Variable
    zero: int | None
    whole: Array
    unit: float
    units: Array
    bias: Array

    def attrs(self) -> dict[str, Any]:
        """Scales as attributes of operators."""
        scales = [float(1 / np.float32(one)) for one in self.units]
        return {
            "use_mkldnn": True,
            "Scale_in": float(1 / np.float32(self.unit)),
            "Scale_weights": scales,
        }


def _factors(node: Node, sides: Sides, axis: int) -> _Factors | None:
    """The numbers of a product; None if it has parts that are not known or do not fit.

    Args:
        node: the node.
        sides: where the parts are.
        axis: axis of the weights' channels.
    """
    value = node.value(sides.data[0])
    found: tuple[Variable, int | None] | None = _levels(node, *sides.data)
    open_point = node.input(sides.data[1]) is not None and value.array is None
    if found is None and open_point and value.dtype == VarType.UINT8:
        found = (node.var(sides.data[0]), None)
    whole = _centred(node, *sides.weight, axis)
    if found is None or whole is None:
        return None
    units = np.ones(1)
    if sides.has(node, sides.weight_scale):
        known = node.known(sides.weight_scale)
        units = np.zeros(1) if known is None else known.astype(np.float64).reshape(-1)
    unit = _scale(node, sides.data_scale) if sides.has(node, sides.data_scale) else 1.0
    channels = whole.shape[axis]
    bias = node.known(sides.bias) if sides.has(node, sides.bias) else np.zeros(channels)
    if unit is None or bias is None or bias.size != channels or not (units > 0).all():
        return None
    if units.size not in (1, channels) or not np.isfinite(1 / units.astype(np.float32)).all():
        return None
    return _Factors(*found, whole, unit * sides.factor, units, bias.reshape(-1).astype(np.float64))


def _centred(node: Node, index: int, point: int, axis: int) -> Array | None:
    """Weights minus their zero points, if they have 8 bits with sign; else None."""
    known, zero = node.known(index), np.zeros(1, np.int64)
    if node.input(point) is not None:
        found = node.known(point)
        if found is None:
            return None
        zero = found.astype(np.int64)
    if known is None or known.dtype not in (np.int8, np.uint8, np.int32):
        return None
    if zero.size > 1:
        zero = zero.reshape([-1 if a == axis else 1 for a in range(known.ndim)])
    whole = known.astype(np.int64) - zero.reshape(zero.shape if zero.size > 1 else ())
    return whole if whole.min(initial=0) >= -128 and whole.max(initial=0) <= 127 else None


def convolution_of_levels(node: Node, sides: Sides) -> Value | None:
    """A convolution of images as ``conv2d`` of levels; None if it cannot be one."""
    if len(node.value(sides.weight[0]).shape) != 4:
        return None
    found, ends = _factors(node, sides, 0), _ends(node, sides)
    if found is None or found.zero is None or ends is None:
        return None
    zero, x = found.zero, found.x
    sums = found.whole.sum(axis=(1, 2, 3))
    filters = found.whole * found.units.reshape(-1, 1, 1, 1)
    weight = node.builder.constant(filters.astype(np.float32), f"{node.prefix}.filters")
    x, weight, attrs, _ = conv_settings(node, x, weight, node.dims(sides.data[0])[2:])
    if zero and any(attrs["paddings"]):
        x = _padded(node, x, zero, attrs)
    attrs |= found.attrs() | ends.attrs("fuse_activation", bool(node.attr("relu", 0)))
    inputs = {
        "Input": x,
        "Filter": weight,
        "Bias": _bias(node, found, found.bias - zero * sums, ends),
    }
    return ends.result(node, node.add("conv2d", inputs, "Output", **attrs))


def _padded(node: Node, x: Variable, zero: int, attrs: dict[str, Any]) -> Variable:
    """Images with the zero point around them; padding is taken out of the attributes."""
    pads = attrs["paddings"]
    pads = [pads[0], pads[0], pads[1], pads[1]] if len(pads) == 2 else pads
    attrs["paddings"] = [0, 0]
    real = node.add("dequantize", {"Input": x}, "Output", Scale=1.0)
    real = node.add("pad2d", {"X": real}, paddings=pads, pad_value=float(zero), mode="constant")
    signed = x.dtype == VarType.INT8
    return node.add("quantize", {"Input": real}, "Output", Scale=1.0, is_negative_input=signed)


def product_of_levels(node: Node, sides: Sides, turned: bool = False) -> Value | None:
    """A product with a matrix as ``fc`` of levels; None if it cannot be one.

    Args:
        node: the node.
        sides: where the parts are.
        turned: whether the weights are transposed.
    """
    rank = node.value(sides.data[0]).rank
    if rank < 2 or node.value(sides.weight[0]).rank != 2:
        return None
    found, ends = _factors(node, sides, 0 if turned else 1), _ends(node, sides)
    if found is None or ends is None or (found.zero is None and ends.point):
        return None
    whole = found.whole.T if turned else found.whole
    weight = node.builder.constant(
        (whole * found.units).astype(np.float32), f"{node.prefix}.weights"
    )
    sums = whole.sum(axis=0)
    bias = _bias(node, found, found.bias - (found.zero or 0) * sums, ends)
    attrs = {"in_num_col_dims": rank - 1} | found.attrs() | ends.attrs("activation_type")
    made = node.add("fc", {"Input": found.x, "W": weight, "Bias": bias}, **attrs)
    if found.zero is None:
        points = node.cast(node.var(sides.data[1]), VarType.FP32)
        each = (sums * found.units * found.unit).astype(np.float32)
        moved = node.binary("elementwise_mul", node.builder.constant(each, node.prefix), points)
        made = node.binary("elementwise_sub", made, moved)
    return ends.result(node, made)


def _bias(node: Node, found: _Factors, whole: Array, ends: _Ends) -> Variable:
    """A bias in units of real numbers, with the zero point of the result."""
    real = whole * found.units * found.unit + ends.moved
    return node.builder.constant(real.astype(np.float32), f"{node.prefix}.bias")


@dataclass(frozen=True)
class _Ends:
    """What becomes of a product.

    Args:
        scale: of its levels.
        point: their zero point; None: it becomes real numbers.
    """

    scale: float = 1.0
    point: _Point | None = None

    @property
    def moved(self) -> float:
        """The real number that is added so that levels have their zero point."""
        return self.point.number * self.scale if self.point else 0.0

    def attrs(self, activation: str, relu: bool = False) -> dict[str, Any]:
        """Attributes of the operator; relu makes its levels those without sign.

        Args:
            activation: name of the attribute of the activation.
            relu: whether levels with sign lose those below zero.
        """
        if self.point is None:
            return {"force_fp32_output": True}
        made: dict[str, Any] = {"Scale_out": float(1 / np.float32(self.scale))}
        if relu and self.point.signed:
            return made | {activation: "relu6", "fuse_alpha": 127.0}
        return made if self.point.signed else made | {activation: "relu"}

    def result(self, node: Node, made: Variable) -> Value:
        """The output of the node."""
        return node.result(made) if self.point is None else self.point.result(node, made)


def _ends(node: Node, sides: Sides) -> _Ends | None:
    if not sides.has(node, sides.out_scale):
        return _Ends()
    scale, point = _scale(node, sides.out_scale), _point(node, sides.out_scale + 1)
    return None if scale is None or point is None else _Ends(scale, point)
