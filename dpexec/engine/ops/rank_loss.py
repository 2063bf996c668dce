"""``rank_loss`` and ``margin_rank_loss``: losses of pairs in the wrong order."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._edges import EXTREMA, spoiled
from dpexec.engine.ops._shapes import require_same_shape
from dpexec.engine.ops.sigmoid_cross_entropy_with_logits import distance, softplus_less


def _check(first: Spec, *others: Spec) -> None:
    for other in others:
        require_same_shape(first, other, "all inputs")


def _infer(label: Spec, left: Spec, right: Spec) -> Spec:
    for name, spec in (("Label", label), ("Left", left), ("Right", right)):
        require(
            spec.rank == 1 or (spec.rank == 2 and spec.shape[1] in (1, -1)),
            f"{name} {spec} must be a vector, or have a second dimension of 1",
        )
        require(
            dims_match(spec.shape[0], label.shape[0]),
            f"{name} {spec} must have as many rows as Label {label}",
        )
    return left.replace(shape=label.shape, lod_level=0)


def _difference(label: Any, left: Any, right: Any) -> Any:
    return (left.reshape(-1) - right.reshape(-1)).reshape(label.shape)


@op(
    "rank_loss",
    ulps=6,
    inputs="Label Left Right",
    infer=_infer,
    samples=lambda r: [
        Sample(
            {
                "Label": r.uniform(0.0, 1.0, (5, 1)),
                "Left": r.normal((5, 1)),
                "Right": r.normal((5, 1)),
            },
            grad=("Left", "Right"),
        ),
        Sample(
            {
                "Label": np.array([[0.0], [1.0], [0.5]]),
                "Left": r.normal((3, 1)),
                "Right": r.normal((3, 1)),
            },
            grad=("Left",),
        ),
        Sample(
            {"Label": np.ones((1, 1)), "Left": r.normal((1, 1)), "Right": r.normal((1, 1))},
            grad=("Right",),
        ),
        Sample(
            {
                "Label": r.uniform(0.0, 1.0, (4,)),
                "Left": r.normal((4, 1)),
                "Right": r.normal((4, 1)),
            },
            grad=("Left", "Right"),
        ),
        Sample(
            {
                "Label": r.uniform(0.0, 1.0, (4, 1)),
                "Left": r.normal((4,)),
                "Right": r.normal((4, 1)),
            },
            grad=("Left", "Right"),
        ),
    ],
)
def rank_loss(xp: Any, label: Any, left: Any, right: Any) -> Any:
    """``log(1 + exp(o)) - label * o`` with ``o = left - right``.

    Each is ``(n)`` or ``(n, 1)``, the result like ``label``. Source: Paddle op ``rank_loss``;
    Burges et al. 2005.
    """
    return softplus_less(xp, _difference(label, left, right), label)


def _infer_grad(label: Spec, left: Spec, right: Spec, d_out: Spec) -> tuple[Spec, Spec]:
    return left.replace(lod_level=0), right.replace(lod_level=0)


@rank_loss.grad(
    "Label", "Left", "Right", "Out@GRAD", outputs="Left@GRAD Right@GRAD", infer=_infer_grad, ulps=8
)
def rank_loss_grad(xp: Any, label: Any, left: Any, right: Any, d_out: Any) -> tuple[Any, Any]:
    """``sigmoid(o) - label``."""
    d_left = d_out * distance(xp, _difference(label, left, right), label)
    return d_left.reshape(left.shape), -d_left.reshape(right.shape)


def _infer_margin(x1: Spec, x2: Spec, label: Spec) -> tuple[Spec, Spec]:
    _check(x1, x2, label)
    dense = x1.replace(lod_level=0)
    return dense, dense


@op(
    "margin_rank_loss",
    inputs="X1 X2 Label",
    outputs="Activated Out",
    infer=_infer_margin,
    samples=lambda r: [
        Sample(
            {
                "X1": r.normal((6, 1)),
                "X2": r.normal((6, 1)),
                "Label": r.integers(0, 2, (6, 1)) * 2.0 - 1.0,
            },
            {"margin": 0.1},
            grad=("X1", "X2"),
        ),
        *(
            Sample(
                {"X1": r.normal((4, 1)), "X2": r.normal((4, 1)), "Label": np.full((4, 1), label)},
                attrs,
                grad=("X1", "X2"),
            )
            for label, attrs in ((1.0, {}), (-1.0, {"margin": 0.5}))
        ),
        spoiled(
            Sample(
                {"X1": r.normal((6, 1)), "X2": r.normal((6, 1)), "Label": np.ones((6, 1))},
                grad=("X1", "X2"),
            ),
            "X1",
            np.nan,
            "Out",
            EXTREMA,
        ),
    ],
    operand_ulps=2,
)
def margin_rank_loss(
    xp: Any, x1: Any, x2: Any, label: Any, *, margin: float = 0.0
) -> tuple[Any, Any]:
    """``max(margin - label * (x1 - x2), 0)``, labels 1 or -1; ``Activated`` is 1 where positive.

    Source: Paddle op ``margin_rank_loss``.
    """
    out = xp.maximum(x1.dtype.type(margin) - label * (x1 - x2), 0)
    return (out > 0).astype(x1.dtype), out


def _infer_margin_grad(label: Spec, activated: Spec, d_out: Spec) -> tuple[Spec, Spec]:
    return activated, activated


@margin_rank_loss.grad(
    "Label Activated Out@GRAD",
    outputs="X1@GRAD X2@GRAD",
    infer=_infer_margin_grad,
    operand_ulps=1,
)
def margin_rank_loss_grad(xp: Any, label: Any, activated: Any, d_out: Any) -> tuple[Any, Any]:
    """``-label`` where the loss is positive."""
    d_x2 = d_out * label * activated
    return -d_x2, d_x2
