"""``mine_hard_examples``: selects hard negative examples for training."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._boxes import Numbers, to_host
from dpexec.engine.ops._sequences import offsets_spec
from dpexec.engine.ops._shapes import require_same_shape

_TYPES = ("max_negative", "hard_example")


def _infer(
    loss: Spec,
    location: Spec | None,
    matches: Spec,
    scores: Spec,
    *,
    mining_type: str = "max_negative",
) -> tuple[Spec, Spec, Spec]:
    require(mining_type in _TYPES, f"mining_type must be {' or '.join(_TYPES)}, not {mining_type}")
    for name, spec in (("LocLoss", location), ("MatchIndices", matches), ("MatchDist", scores)):
        if spec is not None:
            require_same_shape(loss, spec, f"ClsLoss and {name}")
    require(
        loss.rank == 2 and matches.dtype == VarType.INT32,
        f"ClsLoss {loss} must be a matrix, and MatchIndices {matches} int32",
    )
    return Spec((-1, 1), VarType.INT32), offsets_spec(loss.shape[0]), matches.replace(lod_level=0)


def _samples(r: Any) -> list[Sample]:
    inputs = {
        "ClsLoss": r.distinct((2, 8)),
        "MatchIndices": np.array([[0, -1, -1, 1, -1, -1, -1, -1], [-1] * 7 + [0]], np.int32),
        "MatchDist": r.uniform(0, 0.6, (2, 8)),
    }
    location = {"LocLoss": r.distinct((2, 8)) / 3}
    hard = {"mining_type": "hard_example", "sample_size": 3}
    return [
        Sample(inputs, {"neg_pos_ratio": 2.0}),
        Sample(inputs | location, {"neg_pos_ratio": 3.0, "neg_dist_threshold": 0.3}),
        Sample(inputs | location, hard),
        Sample(inputs, hard),
    ]


def _hardest(losses: Numbers, eligible: Numbers, count: int) -> Numbers:
    """Whether each prediction is among the ``count`` eligible ones with the greatest losses."""
    order = np.argsort(-np.where(eligible, losses, -np.inf), kind="stable")
    chosen = np.zeros(losses.shape, bool)
    chosen[order[: min(count, int(eligible.sum()))]] = True
    return chosen


@op(
    "mine_hard_examples",
    inputs="ClsLoss LocLoss? MatchIndices MatchDist",
    outputs="NegIndices NegIndices@LOD UpdatedMatchIndices",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def mine_hard_examples(
    xp: Any,
    loss: Any,
    location: Any,
    matches: Any,
    scores: Any,
    *,
    neg_pos_ratio: float = 1.0,
    neg_dist_threshold: float = 0.5,
    sample_size: int = 0,
    mining_type: str = "max_negative",
) -> tuple[Any, Lod, Any]:
    """The predictions without an object that have the greatest losses, and updated matches.

    With ``max_negative``, an image has up to ``neg_pos_ratio`` times as many as predictions with an
    object, chosen among those with scores below ``neg_dist_threshold``. With ``hard_example``, the
    ``sample_size`` predictions with the greatest losses, including location, are kept; other
    matches are removed. Source: Paddle op ``mine_hard_examples``.
    """
    losses, rows, scores = to_host(loss), to_host(matches).copy(), to_host(scores)
    hard = mining_type == "hard_example"
    if hard and location is not None:
        losses = losses + to_host(location)
    found = []
    for image, row in enumerate(rows):
        eligible = np.full(row.shape, True) if hard else (row < 0) & (
            scores[image] < neg_dist_threshold
        )  # fmt: skip
        limit = sample_size if hard else int((row >= 0).sum() * np.float32(neg_pos_ratio))
        chosen = _hardest(losses[image], eligible, limit)
        found.append(np.flatnonzero(chosen & (row < 0)))
        if hard:
            row[~chosen] = -1
    negatives = np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int32)[:, None]
    return xp.asarray(negatives), Lod.of_lengths([[len(part) for part in found]]), xp.asarray(rows)
