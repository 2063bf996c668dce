"""``GRU`` as fluid's operator ``gru``, which runs all steps of a direction in one call."""

from __future__ import annotations

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.fused_lstm import FusedUnit, part

__all__ = ["FusedGRU", "fuses"]

_ACTIVATIONS = ("sigmoid", "tanh", "relu")


def _names(node: Node, number: int) -> list[str]:
    """Activations of gates and candidates of a direction."""
    names = node.attr("activations") or ["Sigmoid", "Tanh"] * 2
    return [name.lower() for name in names[number * 2 : number * 2 + 2]]


def fuses(node: Node, number: int) -> bool:
    """Whether ``gru`` computes a direction of a node: it resets states before their product."""
    return (
        node.op_type == "GRU"
        and node.var(0).dtype == VarType.FP32
        and not node.attr("linear_before_reset", 0)
        and node.attr("clip") is None
        and all(name in _ACTIVATIONS for name in _names(node, number))
    )


class FusedGRU(FusedUnit):
    """One direction of a ``GRU``: update gate, reset gate and candidate, as fluid has them."""

    def __init__(self, node: Node, number: int) -> None:
        super().__init__(node, number)
        self.gate, self.candidate = _names(node, number)
        weight, own = (part(node, i, number) for i in (1, 2))
        assert weight is not None and own is not None
        self.bias = part(node, 3, number)
        self.size = own.shape[1]
        self.weight = node.transpose(weight, [1, 0])
        ends = (0, 2 * self.size), (2 * self.size, 3 * self.size)
        parts = [
            node.reshape(node.transpose(node.slice(own, 0, *end), [1, 0]), [-1]) for end in ends
        ]
        self.own = node.reshape(node.concat(parts, 0), [self.size, 3 * self.size])

    def _hidden(self, taken: Variable, backwards: bool) -> Variable:
        node = self.node
        given = {"Input": taken, "H0": self.h0, "Weight": self.own, "Bias": self._biases()}
        return node.add("gru", given, "Hidden", is_reverse=backwards, origin_mode=True,
                        gate_activation=self.gate, activation=self.candidate)  # fmt: skip

    def _biases(self) -> Variable:
        """Both biases of each gate together: [1, 3 hidden]."""
        node, width = self.node, 3 * self.size
        if self.bias is None:
            return node.builder.constant(np.zeros((1, width), np.float32))
        halves = (node.slice(self.bias, 0, *end) for end in ((0, width), (width, 2 * width)))
        return node.unsqueeze(node.binary("elementwise_add", *halves), [0])
