"""Comparisons and logic: ``Equal``, ``Less``, ``Greater``, ``And``, ``Or``, ``Xor``, ``Not``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

_COMPARISONS = {
    "Equal": ("equal", "equal"),
    "Less": ("less_than", "greater_than"),
    "LessOrEqual": ("less_equal", "greater_equal"),
    "Greater": ("greater_than", "less_than"),
    "GreaterOrEqual": ("greater_equal", "less_equal"),
}
"""The operator, and the one with its inputs exchanged."""


@operator(*_COMPARISONS)
def compare(node: Node) -> Any:
    """The second tensor of fluid's comparisons must not have more dimensions than the first."""
    op_type, mirrored = _COMPARISONS[node.op_type]
    left, right = node.var(0), node.var(1)
    if node.value(0).rank < node.value(1).rank:
        op_type, left, right = mirrored, right, left
    return node.binary(op_type, left, right)


@operator("And", "Or", "Xor")
def logic(node: Node) -> Any:
    """Fluid's operators take tensors of equal shapes."""
    left, right = node.broadcast(0, 1)
    return node.add(f"logical_{node.op_type.lower()}", {"X": left, "Y": right})


@operator("Not")
def negate(node: Node) -> Any:
    """The negation of every element."""
    return node.add("logical_not", {"X": node.var(0)})


@operator("IsNaN")
def is_nan(node: Node) -> Any:
    """True for elements that are NaN."""
    return node.binary("not_equal", node.var(0), node.var(0))


@operator("IsInf")
def is_infinite(node: Node) -> Any:
    """True for elements that are infinite."""
    x = node.var(0)

    def equals(number: float) -> Variable:
        return node.binary("equal", x, node.number(number, x.dtype))

    wanted = []
    if node.attr("detect_positive", 1):
        wanted.append(equals(float("inf")))
    if node.attr("detect_negative", 1):
        wanted.append(equals(float("-inf")))
    if len(wanted) == 2:
        return node.add("logical_or", {"X": wanted[0], "Y": wanted[1]})
    if wanted:
        return wanted[0]
    return node.add("fill_any_like", {"X": x}, value=0.0, dtype=int(VarType.BOOL))


@operator("Where")
def where(node: Node) -> Any:
    """Fluid's operator takes tensors of equal shapes."""
    chosen, left, right = node.broadcast(0, 1, 2)
    right = _without_nan(node, chosen, right)
    return node.add("where", {"Condition": chosen, "X": left, "Y": right})


def _without_nan(node: Node, chosen: Variable, shares: Variable) -> Variable:
    """Shares of attention whose rows of NaN are replaced: computed again from rows of zeros there.

    A row without any place to look at gives NaN. PyTorch writes ``Where(IsNaN(y), 0, y)`` behind
    the softmax; the gradient of NaN would be NaN, though nothing uses it.
    """
    softmax, test = shares.op, chosen.op
    asked = test is not None and test.type == "not_equal" and test.input("X") == [shares.name]
    if softmax is None or softmax.type != "softmax" or not asked:
        return shares
    scores = node.builder.block._var_recursive(softmax.input("X")[0])
    zeros = node.add("fill_zeros_like", {"X": scores})
    known = node.add("where", {"Condition": chosen, "X": zeros, "Y": scores})
    return node.add("softmax", {"X": known}, axis=softmax.attr("axis"))
