"""``bipartite_match``: one-to-one matching of boxes by their distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._boxes import Numbers, to_host
from dpexec.engine.ops._sequences import sequence_count
from dpexec.engine.ops._shapes import require_float

TINY = 1e-6
"""Pairs with a smaller score are not matched."""
_TYPES = ("bipartite", "per_prediction")


def _infer(scores: Spec, lod: Spec | None, *, match_type: str = "bipartite") -> tuple[Spec, Spec]:
    require_float(scores, "DistMat")
    require(scores.rank == 2, f"DistMat {scores} must be a matrix")
    require(match_type in _TYPES, f"match_type must be {' or '.join(_TYPES)}, not {match_type!r}")
    made = Spec((sequence_count(lod), scores.shape[1]), scores.dtype)
    return made.replace(dtype=VarType.INT32), made


def _greedy(scores: Numbers) -> Numbers:
    """The row of every column, -1 for none: repeatedly takes the best of the remaining pairs."""
    left, rows = scores.T.copy(), np.full(scores.shape[1], -1, np.int32)
    for _ in range(min(scores.shape)):
        column, row = np.unravel_index(left.argmax(), left.shape)
        if left[column, row] < TINY:
            break
        rows[column] = row
        left[column] = left[:, row] = -1
    return rows


def _samples(r: Any) -> list[Sample]:
    lod = Lod([[0, 3, 8]])
    best = {"match_type": "per_prediction", "dist_threshold": 0.6}
    scores = np.array([[0.9, 0.8, 0.1], [0.7, 0.0, 0.2]])
    return [
        Sample({"DistMat": r.uniform(0, 1, (8, 6)), "DistMat@LOD": lod}),
        Sample({"DistMat": r.uniform(0, 1, (8, 4)), "DistMat@LOD": lod}, best),
        Sample({"DistMat": r.uniform(0, 1, (3, 5))}, best),
        Sample(
            {"DistMat": r.uniform(0, 1, (3, 5)), "DistMat@LOD": Lod([[0, 0, 3]])},
            deviates={"*": "refuses images without objects; dpexec matches nothing in them"},
        ),
        Sample(
            {"DistMat": scores, "DistMat@LOD": Lod([[0, 2]])},
            expected={
                "ColToRowMatchIndices": np.array([[0, -1, 1]], np.int32),
                "ColToRowMatchDist": np.array([[0.9, 0.0, 0.2]]),
            },
        ),
    ]


@op(
    "bipartite_match",
    inputs="DistMat DistMat@LOD?",
    outputs="ColToRowMatchIndices ColToRowMatchDist",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def bipartite_match(
    xp: Any,
    scores: Any,
    lod: Lod | None,
    *,
    match_type: str = "bipartite",
    dist_threshold: float = 0.5,
) -> tuple[Any, Any]:
    """For every image and column the row that it is matched with, -1 for none, and its score.

    Rows (objects) of a sequence (image) get a column each, best pairs first. With
    ``per_prediction``, each remaining column gets the row of its greatest score if that is at least
    ``dist_threshold``. Source: Paddle op ``bipartite_match``.
    """
    matrix = to_host(scores)
    spans = lod.spans() if lod else [(0, len(matrix))]
    found = np.full((len(spans), matrix.shape[1]), -1, np.int32)
    best = np.zeros(found.shape, matrix.dtype)
    for image, (start, stop) in enumerate(spans):
        part = matrix[start:stop]
        if not len(part):
            continue
        rows = _greedy(part)
        if match_type == "per_prediction":
            greatest = part.max(axis=0)
            near = (rows < 0) & (greatest >= max(dist_threshold, TINY))
            rows[near] = part.argmax(axis=0)[near]
        found[image] = rows
        best[image] = np.where(rows < 0, 0, part[rows, np.arange(len(rows))])
    return xp.asarray(found), xp.asarray(best)
