"""Operators of ``ai.onnx.ml`` in models of scikit-learn: nets, linear models, scalers, trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

_DOMAIN = "ai.onnx.ml"
_FUNCTIONS = {"NONE": None, "SOFTMAX": "softmax", "LOGISTIC": "sigmoid"}


def _numbers(node: Node) -> Variable:
    """The samples as real numbers, ``(samples, features)``."""
    x = node.var(0)
    return x if is_float(x.dtype) else node.cast(x, VarType.FP32)


def _row(node: Node, name: str, like: Variable, default: float) -> Variable:
    """An attribute with a number for each feature, or one for all."""
    found = np.asarray(node.attr(name) or [default], to_numpy(like.dtype))
    return node.builder.constant(found, node.prefix)


@operator("ArrayFeatureExtractor", domain=_DOMAIN)
def array_feature_extractor(node: Node) -> Any:
    """Columns by their numbers."""
    x, rank = node.var(0), node.value(0).rank
    index = node.reshape(node.cast(node.var(1), VarType.INT64), [-1])
    made = node.add("index_select", {"X": x, "Index": index}, dim=max(rank - 1, 0))
    return node.unsqueeze(made, [0]) if rank < 2 else made


@operator("Scaler", domain=_DOMAIN)
def scaler(node: Node) -> Any:
    """``(x - offset) * scale`` of every feature."""
    x = _numbers(node)
    moved = node.binary("elementwise_sub", x, _row(node, "offset", x, 0.0))
    return node.binary("elementwise_mul", moved, _row(node, "scale", x, 1.0))


@operator("Normalizer", domain=_DOMAIN)
def normalizer(node: Node) -> Any:
    """Samples divided by their norms; those of norm 0 stay."""
    x, kind = _numbers(node), node.attr("norm", "MAX")
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


@operator("Imputer", domain=_DOMAIN)
def imputer(node: Node) -> Any:
    """NaN, or another number that stands for what is missing, is replaced."""
    x = _numbers(node)
    missing = node.attr("replaced_value_float", node.attr("replaced_value_int64", 0))
    lost = node.binary("not_equal", x, x)
    if not np.isnan(missing):
        lost = node.binary("equal", x, node.number(missing, x.dtype))
    name = "imputed_value_floats"
    name = name if node.attr(name) else "imputed_value_int64s"
    dims = node.dims(0)
    row = _row(node, name, x, 0.0)
    new = node.expand(row, row.shape, dims)
    return node.add("where", {"Condition": lost, "X": new, "Y": x})


@operator("Binarizer", domain=_DOMAIN)
def binarizer(node: Node) -> Any:
    """1 above the threshold, else 0."""
    x = node.var(0)
    limit = node.number(node.attr("threshold", 0.0), x.dtype)
    return node.cast(node.binary("greater_than", x, limit), x.dtype)


def _linear(node: Node, rows: int) -> Variable:
    """Products of samples with coefficients, and intercepts: ``(samples, rows)``."""
    x = _numbers(node)
    weights = np.asarray(node.attr("coefficients"), to_numpy(x.dtype)).reshape(rows, -1)
    matrix = node.builder.constant(weights.T, node.prefix)
    made = node.add("mul", {"X": x, "Y": matrix}, x_num_col_dims=1)
    if not node.attr("intercepts"):
        return made
    return node.binary("elementwise_add", made, _row(node, "intercepts", x, 0.0))


def _finished(node: Node, scores: Variable) -> Variable:
    kind = node.attr("post_transform", "NONE")
    if kind not in _FUNCTIONS:
        node.fail(f"post_transform {kind} is not supported")
    op_type = _FUNCTIONS[kind]
    return scores if op_type is None else node.add(op_type, {"X": scores})


@operator("LinearRegressor", domain=_DOMAIN)
def linear_regressor(node: Node) -> Any:
    """Products with coefficients."""
    return _finished(node, _linear(node, node.attr("targets", 1)))


@operator("LinearClassifier", domain=_DOMAIN)
def linear_classifier(node: Node) -> Any:
    """The label with the largest score, and all scores; labels must be integers."""
    labels = node.attr("classlabels_ints")
    if not labels:
        node.fail("its labels are no integers")
    rows = len(node.attr("intercepts") or labels)
    if rows != len(labels):
        node.fail(f"it has {rows} rows of coefficients for {len(labels)} labels")
    scores = _linear(node, rows)
    best = node.cast(node.add("arg_max", {"X": scores}, axis=1, keepdims=False), VarType.INT64)
    table = node.builder.constant(np.asarray(labels, np.int64), node.prefix)
    return [node.add("index_select", {"X": table, "Index": best}, dim=0), _finished(node, scores)]


_COMPARED = {
    "BRANCH_LEQ": "less_equal", "BRANCH_LT": "less_than", "BRANCH_GTE": "greater_equal",
    "BRANCH_GT": "greater_than", "BRANCH_EQ": "equal", "BRANCH_NEQ": "not_equal",
}  # fmt: skip
_OVER_TREES = {
    "SUM": "reduce_sum",
    "AVERAGE": "reduce_mean",
    "MIN": "reduce_min",
    "MAX": "reduce_max",
}


class _Trees:
    """Trees whose nodes are rows of tables: every sample goes down all of them at once.

    Args:
        node: the node.
        prefix: of the attributes with the weights, ``class`` or ``target``.
        width: number of scores of a sample.
    """

    def __init__(self, node: Node, prefix: str, width: int) -> None:
        self.node, self.x = node, _numbers(node)
        self.dtype = to_numpy(self.x.dtype)
        keys = list(zip(node.attr("nodes_treeids"), node.attr("nodes_nodeids"), strict=True))
        places = {key: place for place, key in enumerate(keys)}
        self.modes = np.array(node.attr("nodes_modes"))
        self.leaves = self.modes == "LEAF"
        self.next = [self._children(name, keys, places) for name in ("true", "false")]
        self.roots = self._roots([tree for tree, _ in keys])
        self.weights = np.zeros((len(keys), width), self.dtype)
        parts = (node.attr(f"{prefix}_{name}") for name in ("treeids", "nodeids", "ids", "weights"))
        for tree, place, column, weight in zip(*parts, strict=True):
            self.weights[places[tree, place], column] += self.dtype.type(weight)

    def _children(self, name: str, keys: Any, places: Any) -> Any:
        """The rows of the nodes that come next; a leaf stays where it is."""
        ids = self.node.attr(f"nodes_{name}nodeids")
        return np.array([
            row if self.leaves[row] else places[tree, ids[row]]
            for row, (tree, _) in enumerate(keys)
        ])  # fmt: skip

    def _roots(self, trees: list[int]) -> Any:
        """The rows that no other one leads to; a tree of one leaf is its own root."""
        inner = ~self.leaves
        led = np.concatenate([rows[inner] for rows in self.next]).astype(np.int64)
        rows = np.setdiff1d(np.arange(len(trees)), led)
        if len(rows) != len(set(trees)):
            self.node.fail(f"{len(set(trees))} trees have {len(rows)} roots")
        return rows

    def depth(self) -> int:
        """The most steps from a root to a leaf."""
        rows, steps = self.roots, 0
        while not self.leaves[rows].all():
            if steps > len(self.leaves):
                self.node.fail("its trees have circles")
            rows = np.unique(np.concatenate([table[rows] for table in self.next]))
            steps += 1
        return steps

    def scores(self) -> Variable:
        """What the leaves say, over all trees: ``(samples, scores)``."""
        node = self.node
        kind = node.attr("aggregate_function", "SUM")
        if kind not in _OVER_TREES:
            node.fail(f"aggregate_function {kind} is not supported")
        found = self._taken(self.weights, self._reached())
        found = node.reshape(found, [-1, len(self.roots), self.weights.shape[1]])
        made = node.add(_OVER_TREES[kind], {"X": found}, dim=[1], keep_dim=False)
        base = node.attr("base_values")
        if not base:
            return made
        row = node.builder.constant(np.asarray(base, self.dtype), node.prefix)
        return node.binary("elementwise_add", made, row)

    def _reached(self) -> Variable:
        """The row of the leaf that each sample reaches in each tree, one after the other."""
        node = self.node
        count, features = len(self.roots), np.array(node.attr("nodes_featureids"), np.int64)
        ones = node.add("fill_any_like", {"X": self._column()}, value=1.0, dtype=int(VarType.INT64))
        samples = node.add("cumsum", {"X": ones}, axis=0, exclusive=True)
        samples = node.reshape(node.add("expand", {"X": samples}, expand_times=[1, count]), [-1])
        roots = node.builder.constant(self.roots.astype(np.int64)[None], node.prefix)
        at = node.reshape(node.binary("elementwise_mul", ones, roots), [-1])
        for _ in range(self.depth()):
            columns = self._taken(features, at)
            index = node.add("stack", {"X": [samples, columns]}, "Y", axis=1)
            value = node.add("gather_nd", {"X": self.x, "Index": index})
            after = [self._taken(table.astype(np.int64), at) for table in self.next]
            given = {"Condition": self._goes(value, at), "X": after[0], "Y": after[1]}
            at = node.add("where", given)
        return at

    def _column(self) -> Variable:
        made = self.node.slice(self.x, 1, 0, 1)
        return self.node.cast(self.node.binary("equal", made, made), VarType.INT64)

    def _taken(self, table: Any, at: Variable) -> Variable:
        """Rows of a table."""
        var = self.node.builder.constant(table, self.node.prefix)
        return self.node.add("gather", {"X": var, "Index": at})

    def _goes(self, value: Variable, at: Variable) -> Variable:
        """Whether each sample goes to the node for true."""
        node = self.node
        limits = self._taken(np.asarray(node.attr("nodes_values"), self.dtype), at)
        kinds = sorted(set(self.modes[~self.leaves]))
        if not set(kinds) <= set(_COMPARED):
            node.fail(f"its branches {kinds} are not all known")
        found = node.binary(_COMPARED[kinds[0]], value, limits)
        for kind in kinds[1:]:
            own = self._taken(np.asarray(self.modes == kind), at)
            other = node.binary(_COMPARED[kind], value, limits)
            found = node.add("where", {"Condition": own, "X": other, "Y": found})
        missing = node.attr("nodes_missing_value_tracks_true") or []
        if any(missing):
            lost = node.binary("not_equal", value, value)
            tracked = self._taken(np.asarray(missing, bool), at)
            both = node.add("logical_and", {"X": lost, "Y": tracked})
            found = node.add("logical_or", {"X": found, "Y": both})
        return found


@operator("TreeEnsembleRegressor", domain=_DOMAIN)
def tree_ensemble_regressor(node: Node) -> Any:
    """Every sample goes down all trees at once; the leaves' numbers are added up."""
    return _finished(node, _Trees(node, "target", node.attr("n_targets", 1)).scores())


@operator("TreeEnsembleClassifier", domain=_DOMAIN)
def tree_ensemble_classifier(node: Node) -> Any:
    """Like the regressor, and the label with the largest score; labels must be integers."""
    labels = node.attr("classlabels_int64s")
    if not labels:
        node.fail("its labels are no integers")
    table = node.builder.constant(np.asarray(labels, np.int64), node.prefix)
    if len(labels) == 2 and set(node.attr("class_ids")) == {0}:
        chosen, scores = _of_two(node)
    else:
        found = _Trees(node, "class", len(labels)).scores()
        best = node.add("arg_max", {"X": found}, axis=1, keepdims=False)
        chosen, scores = node.cast(best, VarType.INT64), _finished(node, found)
    return [node.add("index_select", {"X": table, "Index": chosen}, dim=0), scores]


def _of_two(node: Node) -> tuple[Variable, Variable]:
    """The number of the class, and scores of both, where the leaves have those of one class."""
    base = node.attr("base_values") or [0.0]
    node.attrs["base_values"] = [base[-1]]
    found = _Trees(node, "class", 1).scores()
    if min(node.attr("class_weights")) >= 0:  # probabilities
        limit, other = 0.5, node.scaled(found, -1.0, 1.0)
    else:
        limit, other = 0.0, node.scaled(found, -1.0)
    above = node.binary("greater_than", found, node.number(limit, found.dtype))
    parts = [other, found] if limit else [_finished(node, each) for each in (other, found)]
    return node.reshape(node.cast(above, VarType.INT64), [-1]), node.concat(parts, 1)


@operator("LabelEncoder", domain=_DOMAIN)
def label_encoder(node: Node) -> Any:
    """Numbers in place of other numbers."""
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


@operator("ZipMap", domain=_DOMAIN)
def zip_map(node: Node) -> Any:
    """A column for each label stays a tensor, in place of a dictionary for each sample."""
    return node.value(0)
