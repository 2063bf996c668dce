"""``teacher_student_sigmoid_loss``: a loss whose label encodes clicks and a teacher's score."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import require_float
from dpexec.engine.ops.sigmoid_cross_entropy_with_logits import distance, softplus_less


def _infer(x: Spec, label: Spec) -> Spec:
    require_float(x)
    require(
        x.rank == label.rank == 2 and x.shape[1] in (1, -1) and label.shape[1] in (1, -1),
        f"X {x} and Label {label} must be [samples, 1]",
    )
    require(
        dims_match(x.shape[0], label.shape[0]),
        f"X {x} and Label {label} must have equally many rows",
    )
    return x


def _samples(r: SampleRng) -> list[Sample]:
    labels = np.array([[-2.0], [-1.0], [0.3], [1.7], [0.0], [1.0]])
    return [
        Sample({"X": r.away_from(0.0, (6, 1)), "Label": labels}, grad=("X",)),
        Sample({"X": 3 * r.away_from(0.0, (6, 1)), "Label": labels}, grad=("X",)),
        Sample(
            {"X": np.array([[0.5], [-2.0], [4.0], [0.1], [2.0], [-3.0]]), "Label": labels},
            {"soft_max_up_bound": 1.0, "soft_max_lower_bound": -1.5},
            grad=("X",),
            smooth=False,
        ),
    ]


@op(
    "teacher_student_sigmoid_loss",
    ulps=8,
    inputs="X Label",
    outputs="Y",
    infer=_infer,
    attrs={"soft_max_up_bound": 15.0, "soft_max_lower_bound": -15.0},
    samples=_samples,
    grad_lod="own",
)
def teacher_student_sigmoid_loss(xp: Any, x: Any, label: Any) -> Any:
    """The sigmoid cross entropy of a click, and another one with the teacher's score.

    A label below -1 means no click and no score; from -1 to below 0, a click without score; from 0
    to below 1, no click, and the label is the score; from 1 on, a click, and the score is the label
    minus 1. Source: Paddle op ``teacher_student_sigmoid_loss``.
    """
    click, score, scored = _parts(xp, x, label)
    return softplus_less(xp, x, click) + softplus_less(xp, x, score) * scored


def _parts(xp: Any, x: Any, label: Any) -> tuple[Any, Any, Any]:
    """Whether there is a click, the teacher's score, and whether there is one."""
    click = ((label >= -1) & (label < 0)) | (label >= 1)
    scored = label >= 0
    score = xp.where(label >= 1, label - 1, label)
    return click.astype(x.dtype), score, scored.astype(x.dtype)


@teacher_student_sigmoid_loss.grad(
    "X", "Label", "Y@GRAD", outputs="X@GRAD", infer=lambda x, label, d_y: x, operand_ulps=2
)
def teacher_student_sigmoid_loss_grad(
    xp: Any,
    x: Any,
    label: Any,
    d_y: Any,
    *,
    soft_max_up_bound: float = 15.0,
    soft_max_lower_bound: float = -15.0,
) -> Any:
    """Sigmoid minus click and score; none where ``x`` lies outside the bounds."""
    click, score, scored = _parts(xp, x, label)
    inside = xp.clip(x, soft_max_lower_bound, soft_max_up_bound)
    kept = (x > soft_max_lower_bound) & (x < soft_max_up_bound)
    return d_y * (distance(xp, inside, click) + distance(xp, inside, score) * scored) * kept
