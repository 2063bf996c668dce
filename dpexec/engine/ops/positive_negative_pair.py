"""``positive_negative_pair``: counts pairs that a model ranks like their labels, and others."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._sequences import on_host
from dpexec.engine.ops._shapes import require_axis, require_float, require_same_dtype

_TIES = "counts a pair of equal scores as negative and neutral; dpexec counts it as neutral"


def _infer(
    score: Spec,
    label: Spec,
    query: Spec,
    positive: Spec | None,
    negative: Spec | None,
    neutral: Spec | None,
    weight: Spec | None,
    *,
    column: int = 0,
) -> tuple[Spec, Spec, Spec]:
    require(score.rank == 2, f"Score {score} must be [items, columns]")
    require_float(score, "Score")
    if score.shape[1] > 0:
        require_axis(
            column, Spec((1,) * score.shape[1]), f"the columns of Score {score}:", "column"
        )
    require(query.dtype == VarType.INT64, f"QueryID {query} must hold int64")
    for name, spec in (("Label", label), ("QueryID", query), ("Weight", weight)):
        require(
            spec is None
            or (
                spec.rank == 2 and dims_match(spec.shape[0], score.shape[0]) and spec.shape[1] == 1
            ),
            f"{name} {spec} must be [items, 1], a row for each of Score {score}",
        )
    before = {"Positive": positive, "Negative": negative, "Neutral": neutral}
    given = [spec for spec in before.values() if spec is not None]
    require(
        len(given) in (0, 3),
        "AccumulatePositivePair, AccumulateNegativePair and AccumulateNeutralPair come together",
    )
    for name, spec in before.items():
        require(
            spec is None or dims_match(spec.size, 1),
            f"Accumulate{name}Pair {spec} must be one number",
        )
    for other in (label, weight, *given):
        if other is not None:
            require_same_dtype(score, other, "Score, Label, Weight and what is accumulated")
    out = Spec((1,), score.dtype)
    return out, out, out


def _samples(r: SampleRng) -> list[Sample]:
    def items(count: int, columns: int, queries: int, **more: Any) -> dict[str, Any]:
        return {
            "Score": r.distinct((count, columns)),
            "Label": r.integers(0, 3, (count, 1)).astype(np.float64),
            "QueryID": r.integers(0, queries, (count, 1)),
        } | more

    names = ("AccumulatePositivePair", "AccumulateNegativePair", "AccumulateNeutralPair")
    before = {name: np.array([float(number)]) for number, name in enumerate(names, 1)}
    tied = {
        "Score": np.array([[0.1], [0.5], [0.5], [0.9], [0.3]]),
        "Label": np.array([[0.0], [1.0], [0.0], [1.0], [1.0]]),
        "QueryID": np.array([[1], [1], [1], [1], [2]]),
    }
    return [
        Sample(items(9, 1, 2)),
        Sample(items(8, 3, 3, Weight=r.uniform(0.5, 2.0, (8, 1))), {"column": 1}),
        Sample(items(8, 2, 1, **before), {"column": -1}),
        Sample(
            tied,
            expected={
                "PositivePair": np.array([3.0]),
                "NegativePair": np.array([0.0]),
                "NeutralPair": np.array([1.0]),
            },
            deviates={"NegativePair": _TIES},
        ),
    ]


@op(
    "positive_negative_pair",
    inputs="Score Label QueryID AccumulatePositivePair? AccumulateNegativePair? "
    "AccumulateNeutralPair? Weight?",
    outputs="PositivePair NegativePair NeutralPair?",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def positive_negative_pair(
    xp: Any,
    score: Any,
    label: Any,
    query: Any,
    positive: Any,
    negative: Any,
    neutral: Any,
    weight: Any,
    *,
    column: int = 0,
) -> tuple[Any, Any, Any]:
    """Counts pairs of a query's items with different labels: in right order, in wrong order, ties.

    Each count is ``(1,)``, added to the accumulated one. A pair counts 1, or the mean weight of
    both items. Items are ranked by ``column`` of ``score``. Source: Paddle op
    ``positive_negative_pair``.
    """
    scores = (score if isinstance(score, np.ndarray) else score.get())[:, column]
    labels, queries = on_host(label), on_host(query)
    weights = np.ones(len(scores)) if weight is None else on_host(weight).astype(np.float64)
    totals = np.array(
        [0.0 if v is None else on_host(v)[0] for v in (positive, negative, neutral)], np.float64
    )
    for number in np.unique(queries):
        items = np.flatnonzero(queries == number)
        totals += _pairs(scores[items], labels[items], weights[items])
    return tuple(xp.asarray(totals[i : i + 1].astype(score.dtype)) for i in range(3))


def _pairs(scores: Any, labels: Any, weights: Any) -> Any:
    """The counts of one query: pairs in right order, in wrong order, and with equal scores."""
    found = np.zeros(3)
    for i in range(len(scores) - 1):
        rest = slice(i + 1, None)
        counts = (weights[i] + weights[rest]) / 2 * (labels[rest] != labels[i])
        order = np.sign(scores[rest] - scores[i]) * np.sign(labels[rest] - labels[i])
        tied = scores[rest] == scores[i]
        found += [counts[(order > 0)].sum(), counts[~tied & (order <= 0)].sum(), counts[tied].sum()]
    return found
