"""Probabilities of classes from those of all pairs of them (Wu, Lin and Weng 2004, second method).

libsvm, and with it scikit-learn and onnxruntime, goes through the classes until no probability
changes much. Its limit is coarse (0.005), so an exact solution would be another one.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.layers.control_flow import While
from dpexec.onnx.loading.node import Node

__all__ = ["coupled"]

_MOST_ROUNDS = 100


def coupled(node: Node, pairs: Variable, many: int) -> Variable:
    """A probability for each class, ``(samples, classes)``.

    Args:
        node: the node whose operators these are.
        pairs: the probability of the first class of each pair, ``(samples, pairs)``.
        many: the number of classes.
    """
    solver = _Coupling(node, pairs, many)
    solver.loop()
    return node.reshape(solver.estimates, [-1, many])


class _Coupling:
    """The estimates ``p`` that minimize ``p Q p`` of every sample, and how they are improved."""

    def __init__(self, node: Node, pairs: Variable, many: int) -> None:
        self.node, self.many = node, many
        self.matrix = self._matrix(pairs)
        start = node.add("fill_any_like", {"X": node.slice(self.matrix, 2, 0, 1)}, value=1.0 / many)
        self.estimates = start

    def _matrix(self, pairs: Variable) -> Variable:
        """``Q``: (samples, classes, classes)."""
        node, many = self.node, self.many
        dtype = to_numpy(pairs.dtype)
        table, ones = np.zeros((len(list(combinations(range(many), 2))), many, many)), []
        for k, (i, j) in enumerate(combinations(range(many), 2)):
            table[k, i, j], table[k, j, i] = 1.0, -1.0
            ones.append(j * many + i)
        row = np.zeros(many * many, dtype)
        row[ones] = 1.0
        flat = node.builder.constant(table.reshape(len(table), -1).astype(dtype), node.prefix)
        wide = node.add("mul", {"X": pairs, "Y": flat}, x_num_col_dims=1)
        wide = node.binary("elementwise_add", wide, node.builder.constant(row, node.prefix))
        before = node.reshape(wide, [-1, many, many])
        after = node.transpose(before, [0, 2, 1])
        squares = node.add("reduce_sum", {"X": node.add("square", {"X": after})}, dim=[2],
                           keep_dim=True)  # fmt: skip
        diagonal = node.add("expand", {"X": squares}, expand_times=[1, 1, many])
        eye = node.builder.constant(np.eye(many, dtype=dtype), node.prefix)
        diagonal = node.binary("elementwise_mul", diagonal, eye)
        return node.binary(
            "elementwise_sub", diagonal, node.binary("elementwise_mul", before, after)
        )

    def _products(self) -> tuple[Variable, Variable]:
        """``Q p`` and ``p Q p``."""
        node = self.node
        left = node.add("matmul", {"X": self.matrix, "Y": self.estimates})
        both = node.binary("elementwise_mul", self.estimates, left)
        return left, node.add("reduce_sum", {"X": both}, dim=[1], keep_dim=True)

    def changing(self) -> Variable:
        """1 for every sample whose estimates are not good enough, else 0."""
        node = self.node
        left, total = self._products()
        away = node.add("abs", {"X": node.binary("elementwise_sub", left, total)})
        worst = node.add("reduce_max", {"X": away}, dim=[1], keep_dim=True)
        limit = node.number(0.005 / self.many, worst.dtype)
        return node.cast(node.binary("greater_equal", worst, limit), worst.dtype)

    def round(self, changing: Variable) -> None:
        """Improve the estimates of the changing samples, class by class."""
        node = self.node
        left, total = self._products()
        for k in range(self.many):
            column = node.slice(self.matrix, 2, k, k + 1)
            corner = node.slice(column, 1, k, k + 1)
            own = node.slice(left, 1, k, k + 1)
            step = node.binary("elementwise_sub", total, own)
            step = node.binary("elementwise_div", step, corner)
            step = node.binary("elementwise_mul", step, changing)
            whole = node.scaled(step, bias=1.0)
            more = node.binary("elementwise_mul", step, corner)
            more = node.binary("elementwise_add", more, node.scaled(own, 2.0))
            more = node.binary("elementwise_mul", more, step)
            total = node.binary("elementwise_add", total, more)
            for _ in range(2):
                total = node.binary("elementwise_div", total, whole)
            moved = node.binary("elementwise_mul", column, step)
            left = node.binary("elementwise_add", left, moved)
            left = node.binary("elementwise_div", left, whole)
            unit = np.eye(self.many, dtype=to_numpy(step.dtype))[k][:, None]
            place = node.builder.constant(unit, node.prefix)
            wide = node.add("expand", {"X": step}, expand_times=[1, self.many, 1])
            moved = node.binary("elementwise_mul", wide, place)
            self.estimates = node.binary("elementwise_add", self.estimates, moved)
            self.estimates = node.binary("elementwise_div", self.estimates, whole)

    def loop(self) -> None:
        """Rounds until the estimates of all samples are good enough."""
        node, add = self.node, self.node.builder.add
        state = self.estimates
        count = node.add("assign", {"X": node.number(0, VarType.INT64)})
        more = self._unfinished(count)
        with While(more).block():
            self.round(self.changing())
            add("assign", {"X": self.estimates}, {}, prefix=node.prefix, outputs={"Out": state})
            self.estimates = state
            add("increment", {"X": count}, {"step": 1.0}, prefix=node.prefix,
                outputs={"Out": count})  # fmt: skip
            found = self._unfinished(count)
            add("assign", {"X": found}, {}, prefix=node.prefix, outputs={"Out": more})

    def _unfinished(self, count: Variable) -> Variable:
        """Whether there is another round."""
        node = self.node
        worst = node.add("reduce_max", {"X": self.changing()}, reduce_all=True)
        left = node.binary("greater_than", worst, node.number(0, worst.dtype))
        rounds = node.binary("less_than", count, node.number(_MOST_ROUNDS, VarType.INT64))
        return node.add("logical_and", {"X": left, "Y": rounds})
