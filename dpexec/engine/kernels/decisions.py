"""A class as decisions along a path in a tree: their costs, and the gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Sparse, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.math import exp, expm1, inner_product, log1p
from dpexec.engine.ops import hierarchical_sigmoid as declared

__all__: list[str] = []

_ZERO = np.float32(0)
_LIMIT = np.float32(declared.LIMIT)

# Arguments that all kernels have: rows; the longest path; nodes; classes of the complete tree, 0
# for another tree; the other tree's paths and decisions, or the labels twice.


@inline
def _step(classes: int, table: Any, code: Any, row: int, depth: int, step: int) -> tuple[int, int]:
    """The node of a step of a path, -1 behind its end, and the decision there."""
    if classes:
        place = table[row] + classes
        return (place >> (step + 1)) - 1, (place >> step) & 1
    for before in range(step):
        if table[row * depth + before] < 0:
            return -1, 0
    return table[row * depth + step], code[row * depth + step]


@kernel
def _costs(
    rows: Count, depth: Count, nodes: Count, classes: Count, table: Integers, code: Integers,
    width: Count, x: Floats, weight: Floats, biased: Count, bias: Floats, out: Floats,
    decisions: Floats,
) -> int:  # fmt: skip
    """The cost of every row, and of a positive decision at every node of its path.

    Further arguments: width, x, weight, whether there is a bias, the bias, results.
    """
    for i in range(rows):
        if classes and (table[i] < 0 or table[i] >= classes):
            return 1
        for step in range(depth):
            node, _ = _step(classes, table, code, i, depth, step)
            if node >= nodes:
                return 1
    for i in range(rows):
        total = _ZERO
        for step in range(depth):
            node, yes = _step(classes, table, code, i, depth, step)
            z = _ZERO
            if node >= 0:
                z = inner_product(weight, node * width, x, i * width, width)
                z = z + bias[node] if biased else z
                z = -_LIMIT if z < -_LIMIT else (_LIMIT if z > _LIMIT else z)
            rest = log1p(exp(-abs(z)))
            total += rest + max(-z if yes and node >= 0 else z, _ZERO)
            decisions[i * depth + step] = rest + max(z, _ZERO)
        out[i] = total
    return 0


@kernel
def _costs_grad(
    rows: Count, depth: Count, nodes: Count, classes: Count, table: Integers, code: Integers,
    width: Count, x: Floats, weight: Floats, decisions: Floats, d_out: Floats, for_x: Count,
    dx: Floats, for_weight: Count, d_weight: Floats, for_bias: Count, d_bias: Floats,
) -> int:  # fmt: skip
    """The gradients: sums over the nodes of each row, in their order.

    Further arguments: width, x, weight, costs of positive decisions, the gradient of the costs; for
        x, weight and bias, whether a gradient is wanted, and the gradient.
    """
    if for_weight:
        for i in range(nodes * width):
            d_weight[i] = _ZERO
    if for_bias:
        for i in range(nodes):
            d_bias[i] = _ZERO
    for i in range(rows):
        if for_x:
            for j in range(width):
                dx[i * width + j] = _ZERO
        for step in range(depth):
            node, yes = _step(classes, table, code, i, depth, step)
            if node < 0:
                continue
            cost = decisions[i * depth + step]
            d = (-exp(-cost) if yes else -expm1(-cost)) * d_out[i]
            if for_x:
                for j in range(width):
                    dx[i * width + j] += d * weight[node * width + j]
            if for_weight:
                for j in range(width):
                    d_weight[node * width + j] += d * x[i * width + j]
            if for_bias:
                d_bias[node] += d
    return 0


def _tree(
    x: Value, weight: Value, label: Value, table: Value | None, code: Value | None, classes: int
) -> tuple[Any, ...] | None:
    """The first arguments of kernels; None: the numbers of nodes are of another type."""
    if table is None or code is None:
        depth = (classes - 1).bit_length()
        return x.shape[0], depth, weight.shape[0], classes, label, label
    if table.dtype != "int64" or code.dtype != "int64":
        return None
    return x.shape[0], table.shape[1], weight.shape[0], 0, table, code


def _maybe(code: Code, value: Value | None) -> tuple[Any, Any]:
    """Arguments for an optional value: whether it is there, and the value."""
    return value is not None, code.scratch(1) if value is None else value


@lowering("hierarchical_sigmoid")
def hierarchical_sigmoid(
    code: Code, x: Value, weight: Value, label: Value, table: Value | None, codes: Value | None,
    bias: Value | None, out: Value, decisions: Value | None, same: Value | None, *,
    num_classes: int,
) -> Any:  # fmt: skip
    """One pass over the paths; the third output is the weight, which stays what it is."""
    tree = _tree(x, weight, label, table, codes, num_classes)
    if tree is None or same is not None or not single(x, weight, bias):
        return False
    decisions = decisions or code.scratch(x.shape[0], tree[1])
    code.emit(_costs, *tree, x.shape[1], x, weight, *_maybe(code, bias), out, decisions)


@lowering("hierarchical_sigmoid_grad")
def hierarchical_sigmoid_grad(
    code: Code, x: Value, weight: Value, label: Value, table: Value | None, codes: Value | None,
    bias: Value | None, decisions: Value, d_out: Value, dx: Value | None,
    d_weight: Value | Sparse | None, d_bias: Value | None, *, num_classes: int,
) -> Any:  # fmt: skip
    """One pass over the paths."""
    tree = _tree(x, weight, label, table, codes, num_classes)
    if tree is None or isinstance(d_weight, Sparse) or not single(x, weight, d_out):
        return False
    gradients = (*_maybe(code, dx), *_maybe(code, d_weight), *_maybe(code, d_bias))
    code.emit(_costs_grad, *tree, x.shape[1], x, weight, decisions, d_out, *gradients)
