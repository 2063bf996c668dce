"""``Max``, ``Min`` and ``Mean`` of several tensors, element by element."""

from __future__ import annotations

from typing import Any

from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node


@operator("Max", "Min")
def extreme(node: Node) -> Any:
    """One after the other."""
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
