"""Support vector machines of ``ai.onnx.ml``, as skl2onnx writes them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.coupling import coupled
from dpexec.onnx.loading.operators.scikit_learn import (
    DOMAIN,
    class_labels,
    finished,
    labelled,
    numbers_of,
    row_of,
)


@operator("SVMRegressor", domain=DOMAIN)
def support_vectors(node: Node) -> Any:
    """Coefficients times kernels of the sample and each support vector."""
    x, count = numbers_of(node), node.attr("n_supports", 0)
    dtype = to_numpy(x.dtype)
    weights = np.asarray(node.attr("coefficients"), dtype)
    if count:
        x = _kernel(node, x, np.asarray(node.attr("support_vectors"), dtype).reshape(count, -1))
    column = node.builder.constant(weights.reshape(-1, 1), node.prefix)
    made = node.add("mul", {"X": x, "Y": column}, x_num_col_dims=1)
    made = node.scaled(made, bias=float(node.attr("rho", [0.0])[0]))
    if not node.attr("one_class", 0):
        return finished(node, made)
    inside = node.cast(node.binary("greater_than", made, node.number(0, made.dtype)), made.dtype)
    return node.scaled(inside, 2.0, -1.0)


@operator("SVMClassifier", domain=DOMAIN)
def support_vector_classifier(node: Node) -> Any:
    """Votes of all pairs of classes, or their probabilities; words become their numbers."""
    counts, labels = node.attr("vectors_per_class") or [], class_labels(node)
    if not counts or node.attr("post_transform", "NONE") != "NONE":
        node.fail("linear models and post_transform are not supported, only votes of pairs")
    x, many = numbers_of(node), len(counts)
    scores = _pair_scores(node, x, counts)
    pairs = list(combinations(range(many), 2))
    first = node.cast(node.binary("greater_than", scores, node.number(0, x.dtype)), x.dtype)
    # A pair's vote goes to its first class if the score is positive, else to the second.
    table = np.array([[(c == i) - (c == j) for c in range(many)] for i, j in pairs])
    least = np.array([sum(c == j for _, j in pairs) for c in range(many)])
    votes = _affine(node, first, table, least)
    best = node.cast(node.add("arg_max", {"X": votes}, axis=1, keepdims=False), VarType.INT64)
    if node.attr("prob_a"):
        scores = coupled(node, _pair_probabilities(node, scores), many)
    elif many == 2:
        scores = node.concat([node.scaled(scores, -1.0), scores], 1)
    return [labelled(node, best, labels), scores]


def _pair_scores(node: Node, x: Variable, counts: list[int]) -> Variable:
    """A score for each pair of classes; positive ones are for the first class."""
    many, dtype = len(counts), to_numpy(x.dtype)
    vectors = np.asarray(node.attr("support_vectors"), dtype).reshape(sum(counts), -1)
    given = np.asarray(node.attr("coefficients"), dtype).reshape(many - 1, -1)
    ends, pairs = np.cumsum(counts), list(combinations(range(many), 2))
    weights = np.zeros((sum(counts), len(pairs)), dtype)
    for k, (i, j) in enumerate(pairs):
        for own, other in ((i, j - 1), (j, i)):
            part = slice(ends[own] - counts[own], ends[own])
            weights[part, k] = given[other, part]
    return _affine(node, _kernel(node, x, vectors), weights, node.attr("rho") or [0.0])


def _affine(node: Node, x: Variable, matrix: Any, row: Any) -> Variable:
    """Rows of numbers times a known matrix, plus a known row."""
    known = [node.builder.constant(np.asarray(a, to_numpy(x.dtype)), node.prefix) for a in
             (matrix, row)]  # fmt: skip
    made = node.add("mul", {"X": x, "Y": known[0]}, x_num_col_dims=1)
    return node.binary("elementwise_add", made, known[1])


def _pair_probabilities(node: Node, scores: Variable) -> Variable:
    """The probability of the first class of each pair, as Platt's sigmoid tells it."""
    slopes, offsets = row_of(node, "prob_a", scores, 0.0), row_of(node, "prob_b", scores, 0.0)
    moved = node.binary("elementwise_mul", scores, slopes)
    moved = node.binary("elementwise_add", moved, offsets)
    made = node.add("sigmoid", {"X": node.scaled(moved, -1.0)})
    return node.add("clip", {"X": made}, min=1e-7, max=1.0 - 1e-7)


def _kernel(node: Node, x: Variable, vectors: np.ndarray[Any, Any]) -> Variable:
    """How alike each sample and each support vector are."""
    kind = node.attr("kernel_type", "LINEAR")
    gamma, offset, degree = (float(v) for v in node.attr("kernel_params") or (0, 0, 3))
    matrix = node.builder.constant(np.ascontiguousarray(vectors.T), node.prefix)
    products = node.add("mul", {"X": x, "Y": matrix}, x_num_col_dims=1)
    if kind == "RBF":
        own = node.add("reduce_sum", {"X": node.add("square", {"X": x})}, dim=[1], keep_dim=True)
        row = node.builder.constant(np.square(vectors).sum(1), node.prefix)
        both = node.binary("elementwise_add", own, row)
        apart = node.binary("elementwise_sub", both, node.scaled(products, 2.0))
        return node.add("exp", {"X": node.scaled(apart, -gamma)})
    if kind == "LINEAR":
        return products
    moved = node.scaled(products, gamma, offset)
    if kind == "POLY":
        return node.add("pow", {"X": moved}, factor=degree)
    return node.add("tanh", {"X": moved})
