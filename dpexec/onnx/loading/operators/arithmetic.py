"""Arithmetic of tensors, element by element: ``Add``, ``Mul``, ``Pow``, ``Max`` and the like."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node


def _number_beside(node: Node) -> tuple[int, float] | None:
    """The index of the tensor beside a known number of reals, and that number."""
    for index in (1, 0):
        other = node.value(1 - index)
        number = node.single(index)
        fits = node.value(index).rank <= other.rank
        if number is not None and fits and is_float(other.dtype) and other.known is None:
            return 1 - index, number
    return None


@operator("Add", "Sum")
def add(node: Node) -> Any:
    """A known number becomes the bias of ``scale``; ``Sum`` takes any number of tensors."""
    if len(node.inputs) == 1:
        return node.result(node.scaled(node.var(0), 1.0), node.value(0).scalar)
    found = _number_beside(node) if len(node.inputs) == 2 else None
    if found is not None:
        return node.scaled(node.var(found[0]), bias=found[1])
    total = node.var(0)
    for index in range(1, len(node.inputs)):
        total = node.binary("elementwise_add", total, node.var(index))
    return total


@operator("Sub")
def sub(node: Node) -> Any:
    """A known number becomes the bias of ``scale``."""
    found = _number_beside(node)
    if found is None:
        return node.binary("elementwise_sub", node.var(0), node.var(1))
    index, number = found
    sign = 1.0 if index == 0 else -1.0
    return node.scaled(node.var(index), sign, -sign * number)


@operator("Mul")
def mul(node: Node) -> Any:
    """A known number becomes the factor of ``scale``."""
    found = _number_beside(node)
    if found is not None:
        return node.scaled(node.var(found[0]), found[1])
    return node.binary("elementwise_mul", node.var(0), node.var(1))


@operator("Div")
def div(node: Node) -> Any:
    """Integers are divided towards zero."""
    if is_float(node.value(0).dtype):
        return node.binary("elementwise_div", node.var(0), node.var(1))
    left, right, dtype = node.var(0), node.var(1), node.value(0).dtype
    wide = [node.cast(side, VarType.FP64) for side in (left, right)]
    quotient = node.binary("elementwise_div", *wide)
    return node.cast(node.cast(quotient, VarType.INT64), dtype)


@operator("Pow")
def power(node: Node) -> Any:
    """The exponent is cast to the type of the base."""
    base, number = node.var(0), node.single(1)
    if number is not None and is_float(base.dtype) and node.value(1).rank <= node.value(0).rank:
        if number == 2:
            return node.add("square", {"X": base})
        return node.add("pow", {"X": base}, factor=number)
    own = base.dtype
    exponent = node.cast(node.var(1), own if is_float(own) else VarType.FP64)
    made = node.binary("elementwise_pow", node.cast(base, exponent.dtype), exponent)
    return node.cast(made, own)


@operator("Mod")
def modulo(node: Node) -> Any:
    """The remainder with the sign of the divisor; with that of the dividend if ``fmod``."""
    left, right, own = node.var(0), node.var(1), node.value(0).dtype
    if not node.attr("fmod", 0):
        if is_float(own):
            return node.binary("elementwise_mod", left, right)
        quotient = node.binary(
            "elementwise_div", node.cast(left, VarType.FP64), node.cast(right, VarType.FP64)
        )
        whole = node.cast(node.add("floor", {"X": quotient}), own)
        return node.binary("elementwise_sub", left, node.binary("elementwise_mul", whole, right))
    wide = VarType.FP64 if not is_float(own) else own
    quotient = node.binary("elementwise_div", node.cast(left, wide), node.cast(right, wide))
    whole = node.cast(node.cast(quotient, VarType.INT64), own)
    return node.binary("elementwise_sub", left, node.binary("elementwise_mul", whole, right))


@operator("Max", "Min")
def extreme(node: Node) -> Any:
    """The largest or smallest of each element, over all inputs."""
    op_type = f"elementwise_{node.op_type.lower()}"
    found = node.var(0)
    for index in range(1, len(node.inputs)):
        found = node.binary(op_type, found, node.var(index))
    return node.scaled(found) if len(node.inputs) > 1 else node.result(found, node.value(0).scalar)


@operator("Mean")
def mean(node: Node) -> Any:
    """The sum, divided by the number of tensors."""
    total = node.var(0)
    for index in range(1, len(node.inputs)):
        total = node.binary("elementwise_add", total, node.var(index))
    return node.scaled(total, 1 / len(node.inputs))
