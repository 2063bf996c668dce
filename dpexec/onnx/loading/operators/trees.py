"""Ensembles of trees, as scikit-learn, XGBoost and LightGBM train them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.scikit_learn import (
    DOMAIN,
    class_labels,
    finished,
    labelled,
    numbers_of,
)

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
        self.node, self.x = node, numbers_of(node)
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


@operator("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(node: Node) -> Any:
    """Every sample goes down all trees at once; the leaves' numbers are added up."""
    return finished(node, _Trees(node, "target", node.attr("n_targets", 1)).scores())


@operator("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(node: Node) -> Any:
    """Like the regressor, and the label with the largest score; words become their numbers."""
    labels = class_labels(node)
    if len(labels) == 2 and set(node.attr("class_ids")) == {0}:
        chosen, scores = _of_two(node)
    else:
        found = _Trees(node, "class", len(labels)).scores()
        best = node.add("arg_max", {"X": found}, axis=1, keepdims=False)
        chosen, scores = node.cast(best, VarType.INT64), finished(node, found)
    return [labelled(node, chosen, labels), scores]


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
    parts = [other, found] if limit else [finished(node, each) for each in (other, found)]
    return node.reshape(node.cast(above, VarType.INT64), [-1]), node.concat(parts, 1)
