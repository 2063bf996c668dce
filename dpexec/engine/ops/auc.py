"""``auc``: the area under the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.ranges import require_between
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._rows import counted
from dpexec.engine.ops._shapes import product, require_float, require_integer


def _infer(
    predict: Spec,
    label: Spec,
    positive: Spec,
    negative: Spec,
    *,
    num_thresholds: int = 8191,
    slide_steps: int = 1,
) -> tuple[Spec, Spec, Spec]:
    require(num_thresholds > 0, f"num_thresholds must be positive, but is {num_thresholds}")
    require(slide_steps >= 0, f"slide_steps must not be negative, but is {slide_steps}")
    require(predict.rank == 2, f"Predict {predict} must be [samples, classes]")
    require(predict.shape[1] <= 2, f"Predict {predict} must be of two classes, or of one")
    require_float(predict, "Predict")
    require_integer(label, "Label")
    require(
        dims_match(product(label.shape), predict.shape[0]),
        f"Label {label} must have one element for every row of Predict {predict}",
    )
    buckets = num_thresholds + 1
    recent = (slide_steps + 1) * buckets + 1
    allowed = (
        (recent,) if slide_steps else (buckets, recent)
    )  # the layer always declares ``recent``
    for name, spec in (("StatPos", positive), ("StatNeg", negative)):
        require(
            spec.dtype == VarType.INT64
            and any(dims_match(product(spec.shape), count) for count in allowed),
            f"{name} {spec} must hold {allowed[0]} int64 numbers",
        )
    shape = (recent,) if slide_steps else (1, buckets)
    statistics = Spec(shape, VarType.INT64)
    return Spec((1,), VarType.FP64), statistics, statistics


def _samples(r: Any) -> list[Sample]:
    scores = r.uniform(0.0, 1.0, (6, 1))
    calls = []
    for slide_steps, count in ((0, 8), (1, 17), (3, 33)):
        before = r.integers(0, 5, (1, count) if slide_steps == 0 else (count,))
        before = np.zeros_like(before) if slide_steps else before
        calls.append(
            Sample(
                {
                    "Predict": np.concatenate([1 - scores, scores], axis=1),
                    "Label": np.array([[0], [1], [1], [0], [1], [0]]),
                    "StatPos": before,
                    "StatNeg": before.copy(),
                },
                {"num_thresholds": 7, "slide_steps": slide_steps},
            )
        )
    known = {
        "Predict": np.array([[0.1], [0.4], [0.35], [0.8]]),
        "Label": np.array([[0], [0], [1], [1]]),
        "StatPos": np.zeros((1, 101), np.int64),
        "StatNeg": np.zeros((1, 101), np.int64),
    }
    attrs = {"num_thresholds": 100, "slide_steps": 0}
    counts = {name: np.zeros(102, np.int64) for name in ("StatPos", "StatNeg")}
    area = {"AUC": np.array([0.75])}
    return [
        *calls,
        Sample(known, attrs, expected=area),
        Sample({**known, **counts}, attrs, expected=area),
    ]


@op(
    "auc",
    inputs="Predict Label StatPos StatNeg",
    outputs="AUC StatPosOut StatNegOut",
    infer=_infer,
    attrs={"curve": "ROC"},
    inplace={"StatPosOut": "StatPos", "StatNegOut": "StatNeg"},
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def auc(
    xp: Any,
    predict: Any,
    label: Any,
    positive: Any,
    negative: Any,
    *,
    num_thresholds: int = 8191,
    slide_steps: int = 1,
) -> tuple[Any, Any, Any]:
    """The area under the curve of the true over the false positive rate.

    Scores (the last column of ``Predict``) are counted in ``num_thresholds + 1`` buckets,
    separately for positive and negative labels. With ``slide_steps`` 0 the statistics are the
    counts of all batches; else they hold the counts of that many latest batches, their sum, and the
    position of the next batch. ``curve`` has no effect. Source: Paddle op ``auc``.

    Raises:
        ValueError: a score lies outside [0, 1].
    """
    scores = predict[:, -1]
    require_between(xp, scores, 0, 1, "Predict: scores >= 0 and <= 1 expected, but got {}")
    places = (scores * num_thresholds).astype(np.int64)
    hits = label.reshape(-1) > 0
    made = []
    for before, chosen in ((positive, hits), (negative, ~hits)):
        counts = counted(xp, places, chosen, num_thresholds + 1)
        if xp is not np:
            before = before.copy()  # the scores may still be rejected
        made.append(_updated(before, counts, slide_steps))
    (positive, total), (negative, total_negative) = made
    return _area(xp, total, total_negative), positive, negative


def _updated(statistics: Any, counts: Any, slide_steps: int) -> tuple[Any, Any]:
    """The statistics with a batch added, and the counts that the area is computed from."""
    buckets = counts.size
    if not slide_steps:
        total = statistics.reshape(-1)[:buckets] + counts
        return total.reshape(1, buckets), total
    steps = statistics[:-1].reshape(slide_steps + 1, buckets)
    place = statistics[-1:] % slide_steps
    steps[-1] += counts - steps[place][0]
    steps[place] = counts
    statistics[-1] += 1
    return statistics, steps[-1]


def _area(xp: Any, positive: Any, negative: Any) -> Any:
    """Trapezoids under the curve, from the highest threshold down; float64 ``(1,)``."""
    highs = xp.cumsum(positive[::-1]).astype(np.float64)
    widths = negative[::-1].astype(np.float64)
    area = (widths * (highs - positive[::-1] / 2.0)).sum()
    total = positive.sum().astype(np.float64) * negative.sum()
    return (area / xp.maximum(total, 1)).reshape(1)  # if it is 0, so is the area
