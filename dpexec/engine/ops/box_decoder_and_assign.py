"""``box_decoder_and_assign``: boxes decoded for every class, and for the likeliest class."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import require_boxes
from dpexec.engine.ops._proposals import moved


def _infer(prior: Spec, variance: Spec | None, target: Spec, score: Spec) -> tuple[Spec, Spec]:
    require_boxes(prior, "PriorBox")
    require(
        variance is not None and dims_match(variance.size, 4),
        f"PriorBoxVar {variance} must be 4 numbers",
    )
    require(score.rank == 2, f"BoxScore {score} must be (boxes, classes)")
    require(
        target.rank == 2
        and dims_match(target.shape[0], prior.shape[0])
        and dims_match(score.shape[0], prior.shape[0])
        and (min(target.shape[1], score.shape[1]) < 0 or target.shape[1] == 4 * score.shape[1]),
        f"TargetBox {target} must have 4 columns for each of BoxScore {score}, and their rows be "
        f"as many as those of PriorBox {prior}",
    )
    return target, prior


def _samples(r: Any) -> list[Sample]:
    def inputs(boxes: int, classes: int) -> dict[str, Any]:
        low = r.uniform(0, 20, (boxes, 2))
        return {
            "PriorBox": np.hstack([low, low + r.uniform(1, 30, (boxes, 2))]),
            "PriorBoxVar": r.uniform(0.1, 1, (4,)),
            "TargetBox": r.normal((boxes, 4 * classes)),
            "BoxScore": r.distinct((boxes, classes)),
        }

    return [Sample(inputs(5, 3)), Sample(inputs(3, 2), {"box_clip": 0.5}), Sample(inputs(2, 1))]


@op(
    "box_decoder_and_assign",
    inputs="PriorBox PriorBoxVar? TargetBox BoxScore",
    outputs="DecodeBox OutputAssignBox",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def box_decoder_and_assign(
    xp: Any, prior: Any, variance: Any, target: Any, score: Any, *, box_clip: float = 4.135
) -> tuple[Any, Any]:
    """Boxes shifted for every class, and boxes shifted for the class with the best score.

    ``DecodeBox`` is ``(boxes, 4 * classes)``. ``OutputAssignBox`` ``(boxes, 4)`` ignores class 0,
    the background; a box is not shifted if all other classes have scores of -1 or less.
    ``box_clip`` limits the logarithms of factors. Source: Paddle op ``box_decoder_and_assign``.
    """
    boxes, classes = score.shape
    change = target.reshape(boxes, classes, 4) * variance.reshape(4)
    decoded = moved(xp, prior[:, None], change, box_clip)
    if classes == 1:
        return decoded.reshape(boxes, 4), prior.copy()
    best = 1 + xp.argmax(score[:, 1:], axis=1)
    found = xp.arange(boxes)
    known = score[found, best] > -1
    assigned = xp.where(known[:, None], decoded[found, best], prior)
    return decoded.reshape(boxes, 4 * classes), assigned
