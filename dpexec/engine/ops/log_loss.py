"""``log_loss`` and ``hinge_loss``: losses of yes-or-no answers."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._shapes import require_float, require_shape_of


def _infer(scores: Spec, labels: Spec) -> Spec:
    require_float(scores, "Predicted")
    require_shape_of(labels, scores, "labels", "the scores")
    return scores


@op(
    "log_loss",
    ulps=8,
    inputs="Predicted Labels",
    outputs="Loss",
    infer=_infer,
    samples=lambda r: (
        [
            Sample(
                {"Predicted": r.uniform(0.1, 0.9, (4, 1)), "Labels": r.uniform(0.0, 1.0, (4, 1))},
                {"epsilon": epsilon},
                grad=("Predicted",),
            )
            for epsilon in (1e-4, 1e-2, 0.1)
        ]
        + [
            Sample(
                {"Predicted": r.uniform(0.1, 0.9, (3, 2)), "Labels": r.uniform(0.0, 1.0, (3, 2))},
                {"epsilon": 1e-4},
                grad=("Predicted",),
                deviates={"*": "refuses several columns; dpexec takes them"},
            )
        ]
    ),
    capturable=True,
)
def log_loss(xp: Any, predicted: Any, labels: Any, *, epsilon: float) -> Any:
    """``-y * log(p + epsilon) - (1 - y) * log(1 - p + epsilon)``.

    Source: Paddle op ``log_loss``.
    """
    tiny = predicted.dtype.type(epsilon)
    more = tiny - predicted
    no = xp.where(more > -0.25, xp.log1p(xp.maximum(more, -0.25)), xp.log(1 - predicted + tiny))
    return -labels * xp.log(predicted + tiny) - (1 - labels) * no


@log_loss.grad("Predicted", "Labels", "Loss@GRAD", outputs="Predicted@GRAD", dense=True, ulps=6)
def log_loss_grad(
    xp: Any, predicted: Any, labels: Any, d_loss: Any, *, epsilon: float = 1e-4
) -> Any:
    """``(1 - y) / (1 - p + epsilon) - y / (p + epsilon)``."""
    tiny = predicted.dtype.type(epsilon)
    return d_loss * ((1 - labels) / (1 - predicted + tiny) - labels / (predicted + tiny))


@op(
    "hinge_loss",
    inputs="Logits Labels",
    outputs="Loss",
    infer=_infer,
    samples=lambda r: [
        Sample(
            {"Logits": r.normal((rows, 1)), "Labels": r.integers(0, 2, (rows, 1)).astype(float)},
            grad=("Logits",),
        )
        for rows in (6, 1, 9)
    ],
    operand_ulps=2,
)
def hinge_loss(xp: Any, logits: Any, labels: Any) -> Any:
    """``max(1 - (2 * label - 1) * logit, 0)``, labels 0 or 1. Source: Paddle op ``hinge_loss``."""
    return xp.maximum(1 - (2 * labels - 1) * logits, 0)


@hinge_loss.grad("Logits", "Labels", "Loss@GRAD", outputs="Logits@GRAD", dense=True, operand_ulps=1)
def hinge_loss_grad(xp: Any, logits: Any, labels: Any, d_loss: Any) -> Any:
    """``-(2 * label - 1)`` where the loss is positive."""
    sign = 2 * labels - 1
    return -d_loss * sign * (sign * logits < 1)
