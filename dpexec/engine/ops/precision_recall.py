"""``precision_recall``: precision, recall and F1 of classes, for a batch and accumulated."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._rows import check_rows
from dpexec.engine.ops._sequences import on_host
from dpexec.engine.ops._shapes import require_float, require_same_dtype

_COUNTS = 4
"""True positives, false positives, true negatives and false negatives, in this order."""


def _infer(
    scores: Spec,
    indices: Spec,
    labels: Spec,
    weights: Spec | None,
    states: Spec | None,
    *,
    class_number: int,
) -> tuple[Spec, Spec, Spec]:
    require(class_number > 0, f"class_number must be positive, but is {class_number}")
    require_float(scores, "MaxProbs")
    columns = {"MaxProbs": scores, "Indices": indices, "Labels": labels, "Weights": weights}
    for name, spec in columns.items():
        require(
            spec is None
            or (
                spec.rank == 2
                and dims_match(spec.shape[1], 1)
                and dims_match(spec.shape[0], scores.shape[0])
            ),
            f"{name} {spec} must be [samples, 1], a row for each of MaxProbs {scores}",
        )
    for name, spec in (("Indices", indices), ("Labels", labels)):
        require(spec.dtype == VarType.INT32, f"{name} {spec} must hold int32")
    if weights is not None:
        require_same_dtype(scores, weights, "MaxProbs and Weights")
    shape = (class_number, _COUNTS)
    if states is not None:
        require_same_dtype(scores, states, "MaxProbs and StatesInfo")
        require(
            states.rank == 2 and all(map(dims_match, states.shape, shape)),
            f"StatesInfo {states} must be {list(shape)}",
        )
    metrics = Spec((6,), VarType.FP64)
    return metrics, metrics, Spec(shape, scores.dtype)


def _samples(r: SampleRng) -> list[Sample]:
    def drawn(samples: int, classes: int, **more: Any) -> dict[str, Any]:
        found = {"MaxProbs": r.uniform(0.0, 1.0, (samples, 1))}
        for name in ("Indices", "Labels"):
            found[name] = r.integers(0, classes, (samples, 1)).astype(np.int32)
        return found | more

    half = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    known = {
        "MaxProbs": np.full((2, 1), 0.9),
        "Indices": np.array([[0], [0]], np.int32),
        "Labels": np.array([[0], [1]], np.int32),
    }
    counts = np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    return [
        Sample(drawn(9, 4), {"class_number": 4}),
        Sample(drawn(6, 3, Weights=r.uniform(0.1, 2.0, (6, 1))), {"class_number": 3}),
        Sample(
            drawn(
                8, 5, Weights=r.uniform(0.1, 2.0, (8, 1)), StatesInfo=r.uniform(0.0, 9.0, (5, 4))
            ),
            {"class_number": 5},
        ),
        Sample(drawn(4, 3, StatesInfo=np.zeros((3, 4))), {"class_number": 3}),
        Sample(
            known,
            {"class_number": 2},
            expected={
                # class 1 is never predicted: its precision counts as 1
                "BatchMetrics": np.array([0.75, 0.5, 0.6, *half[3:]]),
                "AccumStatesInfo": counts,
            },
        ),
    ]


@op(
    "precision_recall",
    inputs="MaxProbs Indices Labels Weights? StatesInfo?",
    outputs="BatchMetrics AccumMetrics AccumStatesInfo",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def precision_recall(
    xp: Any,
    scores: Any,
    indices: Any,
    labels: Any,
    weights: Any,
    states: Any,
    *,
    class_number: int,
) -> tuple[Any, Any, Any]:
    """Macro precision, recall and F1, then micro ones, ``(6,)``; and the counts behind them.

    A row of the counts belongs to a class: true positives, false positives, true negatives, false
    negatives, in samples or their weights. ``AccumMetrics`` are the metrics of the counts of this
    batch and ``StatesInfo`` together. A quotient of zeros counts as 1, F1 of zeros as 0. The
    scores themselves are not read. Source: Paddle op ``precision_recall``.

    Raises:
        ValueError: an index or label is no class.
    """
    shape = (class_number, _COUNTS)
    found, wanted = on_host(indices), on_host(labels)
    check_rows(np, found, class_number, "Indices")
    check_rows(np, wanted, class_number, "Labels")
    shares = np.ones(len(found)) if weights is None else on_host(weights).astype(np.float64)
    batch = _counts(found, wanted, shares, class_number)
    total = batch if states is None else batch + on_host(states).reshape(shape)
    made = (_metrics(batch), _metrics(total), total.astype(scores.dtype))
    return tuple(map(xp.asarray, made))


def _counts(found: Any, wanted: Any, shares: Any, classes: int) -> Any:
    """The four counts of each class, ``(classes, 4)``, in double precision."""
    hits = found == wanted
    true, false, missed = (
        np.bincount(numbers[chosen], shares[chosen], classes)
        for numbers, chosen in ((found, hits), (found, ~hits), (wanted, ~hits))
    )
    return np.stack([true, false, shares.sum() - true - false - missed, missed], axis=1)


def _metrics(counts: Any) -> Any:
    """Precision, recall and F1 as means over classes, and of the counts of all classes."""
    true, false, _, missed = counts.T
    found = []
    for hits, wrong, absent in ((true, false, missed), counts.sum(axis=0)[[0, 1, 3]]):
        precision, recall = _share(hits, wrong).mean(), _share(hits, absent).mean()
        total = precision + recall
        found += [precision, recall, 2 * precision * recall / total if total > 0 else 0.0]
    return np.array(found)


def _share(part: Any, rest: Any) -> Any:
    """``part / (part + rest)``, 1 where both are 0."""
    total = part + rest
    return np.where(total > 0, part / np.where(total > 0, total, 1), 1.0)
