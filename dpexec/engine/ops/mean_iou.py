"""``mean_iou``: mean intersection over union of predicted and true classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._rows import check_rows, counted
from dpexec.engine.ops._shapes import require_integer


def _infer(
    predictions: Spec,
    labels: Spec,
    wrongs: list[Spec],
    corrects: list[Spec],
    means: list[Spec],
    *,
    num_classes: int,
) -> tuple[Spec, Spec, Spec]:
    require_integer(predictions, "Predictions")
    require_integer(labels, "Labels")
    require(
        -1 in (predictions.size, labels.size) or predictions.size == labels.size,
        f"Predictions {predictions} and Labels {labels} must have equally many elements",
    )
    require(num_classes > 0, f"num_classes is {num_classes}, but must be positive")
    for name, spec in (("InWrongs", wrongs), ("InCorrects", corrects)):
        require(
            all(part.shape == (num_classes,) for part in spec),
            f"{name} must hold vectors with one element per class",
        )
    counts = Spec((num_classes,), VarType.INT32)
    return Spec((1,)), counts, counts


@op(
    "mean_iou",
    inputs="Predictions Labels InWrongs?[] InCorrects?[] InMeanIou?[]",
    outputs="OutMeanIou OutWrong OutCorrect",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {
                "Predictions": np.array([0, 1, 1, 2, 2], dtype=np.int32),
                "Labels": np.array([0, 1, 2, 2, 1], dtype=np.int32),
            },
            {"num_classes": 4},
            expected={
                "OutMeanIou": np.array([5 / 9]),
                "OutWrong": np.array([0, 2, 2, 0]),
                "OutCorrect": np.array([1, 1, 1, 0]),
            },
        ),
        Sample(
            {"Predictions": r.integers(0, 3, (4, 5)), "Labels": r.integers(0, 3, (4, 5))},
            {"num_classes": 3},
        ),
        Sample(
            {
                "Predictions": r.integers(0, 3, (2, 3)).astype(np.int32),
                "Labels": r.integers(0, 3, (2, 3)).astype(np.int32),
                "InWrongs": [r.integers(0, 5, (3,)).astype(np.int32) for _ in range(2)],
                "InCorrects": [r.integers(0, 5, (3,)).astype(np.int32)],
                "InMeanIou": [np.array([0.25]), np.array([0.5])],
            },
            {"num_classes": 3},
        ),
    ],
)
def mean_iou(
    xp: Any,
    predictions: Any,
    labels: Any,
    wrongs: list[Any],
    corrects: list[Any],
    means: list[Any],
    *,
    num_classes: int,
) -> tuple[Any, Any, Any]:
    """The mean of intersection over union, over the classes that occur.

    Labels may have another shape, such as a column for a vector of predictions. The counts behind
    the mean are returned, too: per class the wrong elements (as predicted and as true class) and
    the right ones. Results of earlier calls are added. Source: Paddle op ``mean_iou``.

    Raises:
        ValueError: there is no such class.
    """
    check_rows(xp, predictions, num_classes, "Predictions")
    check_rows(xp, labels, num_classes, "Labels")
    predictions, labels = predictions.ravel(), labels.ravel()
    right = predictions == labels
    correct = counted(xp, labels, right, num_classes)
    wrong = counted(xp, predictions, ~right, num_classes) + counted(xp, labels, ~right, num_classes)
    correct, wrong = sum(corrects, correct), sum(wrongs, wrong)
    union = correct + wrong
    share = correct / xp.maximum(union, 1)
    mean = share.sum() / xp.maximum((union > 0).sum(), 1)
    total = sum((part.reshape(1) for part in means), mean.reshape(1))
    return total.astype(np.float32), wrong.astype(np.int32), correct.astype(np.int32)
