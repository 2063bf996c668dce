"""Operators of ``ai.onnx.ml`` in models of scikit-learn: nets, linear models, scalers, labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.values import Value

DOMAIN = "ai.onnx.ml"
_FUNCTIONS = {"NONE": None, "SOFTMAX": "softmax", "LOGISTIC": "sigmoid"}


def numbers_of(node: Node) -> Variable:
    """The samples as real numbers, ``(samples, features)``."""
    x = node.var(0)
    return x if is_float(x.dtype) else node.cast(x, VarType.FP32)


def row_of(node: Node, name: str, like: Variable, default: float) -> Variable:
    """An attribute with a number for each feature, or one for all."""
    found = np.asarray(node.attr(name) or [default], to_numpy(like.dtype))
    return node.builder.constant(found, node.prefix)


@operator("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(node: Node) -> Any:
    """Selects columns by their numbers."""
    x, rank = node.var(0), node.value(0).rank
    index = node.reshape(node.cast(node.var(1), VarType.INT64), [-1])
    made = node.add("index_select", {"X": x, "Index": index}, dim=max(rank - 1, 0))
    return node.unsqueeze(made, [0]) if rank < 2 else made


@operator("Scaler", domain=DOMAIN)
def scaler(node: Node) -> Any:
    """``(x - offset) * scale`` of every feature."""
    x = numbers_of(node)
    moved = node.binary("elementwise_sub", x, row_of(node, "offset", x, 0.0))
    return node.binary("elementwise_mul", moved, row_of(node, "scale", x, 1.0))


@operator("Normalizer", domain=DOMAIN)
def normalizer(node: Node) -> Any:
    """Samples divided by their norms; those of norm 0 stay."""
    x, kind = numbers_of(node), node.attr("norm", "MAX")
    over: dict[str, Any] = {"dim": [len(x.shape) - 1], "keep_dim": True}
    if kind == "L2":
        norm = node.add("sqrt", {"X": node.add("reduce_sum", {"X": node.add("square", {"X": x})},
                                               **over)})  # fmt: skip
    elif kind == "L1":
        norm = node.add("reduce_sum", {"X": node.add("abs", {"X": x})}, **over)
    else:
        norm = node.add("reduce_max", {"X": x}, **over)
    zero = node.cast(node.binary("equal", norm, node.number(0.0, norm.dtype)), norm.dtype)
    return node.binary("elementwise_div", x, node.binary("elementwise_add", norm, zero))


@operator("Imputer", domain=DOMAIN)
def imputer(node: Node) -> Any:
    """NaN, or another number that stands for what is missing, is replaced."""
    x = numbers_of(node)
    missing = node.attr("replaced_value_float", node.attr("replaced_value_int64", 0))
    lost = node.binary("not_equal", x, x)
    if not np.isnan(missing):
        lost = node.binary("equal", x, node.number(missing, x.dtype))
    name = "imputed_value_floats"
    name = name if node.attr(name) else "imputed_value_int64s"
    dims = node.dims(0)
    row = row_of(node, name, x, 0.0)
    new = node.expand(row, row.shape, dims)
    return node.add("where", {"Condition": lost, "X": new, "Y": x})


@operator("Binarizer", domain=DOMAIN)
def binarizer(node: Node) -> Any:
    """1 above the threshold, else 0."""
    x = node.var(0)
    limit = node.number(node.attr("threshold", 0.0), x.dtype)
    return node.cast(node.binary("greater_than", x, limit), x.dtype)


def _linear(node: Node, rows: int) -> Variable:
    """Products of samples with coefficients, and intercepts: ``(samples, rows)``."""
    x = numbers_of(node)
    weights = np.asarray(node.attr("coefficients"), to_numpy(x.dtype)).reshape(rows, -1)
    matrix = node.builder.constant(weights.T, node.prefix)
    made = node.add("mul", {"X": x, "Y": matrix}, x_num_col_dims=1)
    if not node.attr("intercepts"):
        return made
    return node.binary("elementwise_add", made, row_of(node, "intercepts", x, 0.0))


def finished(node: Node, scores: Variable) -> Variable:
    """Scores after a function of all of them."""
    kind = node.attr("post_transform", "NONE")
    if kind not in _FUNCTIONS:
        node.fail(f"post_transform {kind} is not supported")
    op_type = _FUNCTIONS[kind]
    return scores if op_type is None else node.add(op_type, {"X": scores})


def class_labels(node: Node) -> list[int]:
    """The labels of a classifier; the places of words, which programs do not have."""
    labels: list[int] | None = node.attr("classlabels_ints") or node.attr("classlabels_int64s")
    return labels or list(range(len(node.attr("classlabels_strings") or [])))


def labelled(node: Node, places: Variable, labels: list[int]) -> Value:
    """The labels at some places (int64); marked if they stand for words."""
    table = node.builder.constant(np.asarray(labels, np.int64), node.prefix)
    found = node.result(node.add("index_select", {"X": table, "Index": places}, dim=0))
    if node.attr("classlabels_strings"):
        found.element = TensorProto.STRING
    return found


@operator("LinearRegressor", domain=DOMAIN)
def linear_regressor(node: Node) -> Any:
    """Products of features with coefficients, plus intercepts."""
    return finished(node, _linear(node, node.attr("targets", 1)))


@operator("LinearClassifier", domain=DOMAIN)
def linear_classifier(node: Node) -> Any:
    """The label with the largest score, and all scores; words as labels become their numbers."""
    labels = class_labels(node)
    rows = len(node.attr("intercepts") or labels)
    if rows != len(labels):
        node.fail(f"it has {rows} rows of coefficients for {len(labels)} labels")
    scores = _linear(node, rows)
    best = node.cast(node.add("arg_max", {"X": scores}, axis=1, keepdims=False), VarType.INT64)
    return [labelled(node, best, labels), finished(node, scores)]


@operator("LabelEncoder", domain=DOMAIN)
def label_encoder(node: Node) -> Any:
    """Replaces numbers by other numbers."""
    names = [f"{kind}_{dtype}" for kind in ("keys", "values") for dtype in ("int64s", "floats")]
    (keys, values), x = ([node.attr(n) for n in names if node.attr(n)] or [[], []]), node.var(0)
    if not keys or not values:
        node.fail("its keys or values are no numbers")
    whole = bool(node.attr("values_int64s"))
    other = node.attr("default_int64", -1) if whole else node.attr("default_float", -0.0)
    dtype = VarType.INT64 if whole else VarType.FP32
    column = node.reshape(x, [-1, 1])
    row = node.builder.constant(np.asarray(keys, to_numpy(x.dtype))[None], node.prefix)
    found = node.binary("equal", node.expand(column, [-1, 1], [-1, len(keys)]), row)
    hits = node.cast(found, VarType.FP64)
    steps = np.asarray(values, np.float64)[:, None] - float(other)
    made = node.add("mul", {"X": hits, "Y": node.builder.constant(steps, node.prefix)})
    made = node.cast(node.scaled(made, 1.0, float(other)), dtype)
    return node.reshape(made, node.dims(0), node.dims(0))


@operator("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(node: Node) -> Any:
    """1 in the column of each number's category; categories must be numbers."""
    categories = node.attr("cats_int64s")
    if not categories:
        node.fail("its categories are no numbers")
    x, dims = node.var(0), node.dims(0)
    row = node.builder.constant(np.asarray(categories, to_numpy(x.dtype)), node.prefix)
    column = node.unsqueeze(x, [len(dims)])
    wide = node.expand(column, [*dims, 1], [*dims, len(categories)])
    return node.cast(node.binary("equal", wide, row), VarType.FP32)


@operator("ZipMap", domain=DOMAIN)
def zip_map(node: Node) -> Any:
    """A column for each label stays a tensor, in place of a dictionary for each sample."""
    return node.value(0)
