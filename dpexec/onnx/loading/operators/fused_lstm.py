"""``LSTM`` as fluid's operator ``lstm``, which runs all steps of a direction in one call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.node import Node

__all__ = ["FusedLSTM", "FusedUnit", "fuses", "part"]

_DEFAULT = ("Sigmoid", "Tanh", "Tanh")
_ACTIVATIONS = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu"}
_GATES = (3, 0, 2, 1)
"""Candidate, input, forget and output gate, as ``lstm`` has them, in ONNX's order."""


def _names(node: Node, number: int) -> list[str]:
    """Activations of gates, candidates and results of a direction."""
    names = node.attr("activations") or _DEFAULT * 2
    return [name.lower() for name in names[number * 3 : number * 3 + 3]]


def fuses(node: Node, number: int) -> bool:
    """Whether ``lstm`` computes a direction of a node."""
    return (
        node.op_type == "LSTM"
        and node.var(0).dtype == VarType.FP32
        and not node.attr("input_forget", 0)
        and node.attr("clip") is None
        and all(name in _ACTIVATIONS for name in _names(node, number))
        and not any(node.outputs[2:3])  # gradients of `lstm` come from hidden states alone
    )


def part(node: Node, index: int, number: int) -> Variable | None:
    """What an input of a recurrent node has for one of its directions."""
    var = node.optional(index)
    if var is None:
        return None
    return node.squeeze(node.slice(var, 0, number, number + 1), [0])


class FusedUnit(ABC):
    """One direction of a recurrent node.

    Args:
        node: the node.
        number: which of its directions.
    """

    weight: Variable
    size: int

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.h0 = part(node, 5, number)

    @abstractmethod
    def _hidden(self, taken: Variable, backwards: bool) -> Variable:
        """The states after each step of sequences that are multiplied by the weight already."""

    def run(
        self, x: Variable, dims: list[Any], backwards: bool = False
    ) -> tuple[Variable, list[Variable]]:
        """The states after each step, [time, batch, hidden]; and the last ones, [batch, hidden].

        Args:
            x: the sequences, [time, batch, features]; all have as many steps.
            dims: the sizes of x.
            backwards: whether to go from the last step to the first.
        """
        node = self.node
        images = node.unsqueeze(node.transpose(x, [1, 2, 0]), [3])  # every step is a window
        rows = node.add("im2sequence", {"X": images}, kernels=[1, 1], strides=[1, 1],
                        paddings=[0, 0, 0, 0])  # fmt: skip
        hidden = self._hidden(node.add("mul", {"X": rows, "Y": self.weight}), backwards)
        kind = "FIRST" if backwards else "LAST"
        last = node.add("sequence_pool", {"X": hidden}, pooltype=kind)
        states = node.reshape(hidden, [dims[1], dims[0], self.size])
        return node.transpose(states, [1, 0, 2]), [last]

    def until(
        self, lengths: Variable, mask: Variable, x: Variable, dims: list[Any]
    ) -> tuple[Variable, list[Variable]]:
        """Like :meth:`run` of sequences that end after some steps; their states are 0 behind that.

        Args:
            lengths: steps of each sequence, [batch].
            mask: 1 for steps of a sequence, 0 behind its end, [time, batch, 1].
            x: the sequences, [time, batch, features].
            dims: the sizes of x.
        """
        node = self.node
        states, _ = self.run(x, dims)
        row = node.slice(states, 0, 0, 1)
        before = self._zeros(row) if self.h0 is None else node.unsqueeze(self.h0, [0])
        steps = node.cast(lengths, VarType.INT64)
        ones = node.add("fill_any_like", {"X": steps}, value=1.0, dtype=int(VarType.INT64))
        samples = node.add("cumsum", {"X": ones}, axis=0, exclusive=True)
        ends = node.add("stack", {"X": [steps, samples]}, "Y", axis=1)
        last = node.add("gather_nd", {"X": node.concat([before, states], 0), "Index": ends})
        return node.binary("elementwise_mul", states, mask), [last]

    def _zeros(self, like: Variable) -> Variable:
        return self.node.add("fill_any_like", {"X": like}, value=0.0, dtype=int(like.dtype))


class FusedLSTM(FusedUnit):
    """One direction of an ``LSTM``."""

    def __init__(self, node: Node, number: int) -> None:
        super().__init__(node, number)
        kinds = (_ACTIVATIONS[name] for name in _names(node, number))
        self.gate, self.candidate, self.cell = kinds
        self.bias, self.peepholes = part(node, 3, number), part(node, 7, number)
        self.c0 = part(node, 6, number)
        weight, own = (self._ordered(part(node, i, number)) for i in (1, 2))
        self.weight, self.own = (node.transpose(w, [1, 0]) for w in (weight, own))
        self.size = self.own.shape[0]

    def _hidden(self, taken: Variable, backwards: bool) -> Variable:
        given = {
            "Input": taken,
            "H0": self._first(self.h0, self.c0),
            "C0": self._first(self.c0, self.h0),
            "Weight": self.own,
            "Bias": self._biases(),
        }
        return self.node.add("lstm", given, "Hidden", is_reverse=backwards,
                             gate_activation=self.gate, candidate_activation=self.candidate,
                             cell_activation=self.cell,
                             use_peepholes=self.peepholes is not None)  # fmt: skip

    def _ordered(self, var: Any) -> Variable:
        """What belongs to the gates, [4 hidden, ...], in the order that ``lstm`` has."""
        size = var.shape[0] // 4
        order = np.concatenate([np.arange(size) + gate * size for gate in _GATES])
        index = self.node.builder.constant(order.astype(np.int64))
        return self.node.add("gather", {"X": var, "Index": index})

    def _biases(self) -> Variable:
        """Biases of candidates and gates, and then peepholes of the gates: [1, 4 or 7 hidden]."""
        node, size = self.node, self.own.shape[0]
        if self.bias is None:
            found = node.builder.constant(np.zeros(4 * size, np.float32))
        else:
            ends = (0, 4 * size), (4 * size, 8 * size)
            halves = (self._ordered(node.slice(self.bias, 0, *end)) for end in ends)
            found = node.binary("elementwise_add", *halves)
        if self.peepholes is not None:
            peepholes = (node.slice(self.peepholes, 0, i * size, (i + 1) * size) for i in (0, 2, 1))
            found = node.concat([found, *peepholes], 0)
        return node.unsqueeze(found, [0])

    def _first(self, states: Variable | None, others: Variable | None) -> Variable | None:
        """First states; zeros if only the other ones are given."""
        return states if states is not None or others is None else self._zeros(others)
