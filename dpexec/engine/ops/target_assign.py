"""``target_assign``: the training target of every prediction."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._boxes import to_host
from dpexec.engine.ops._sequences import row_owners, sequence_count


def _infer(
    x: Spec, lod: Spec | None, matches: Spec, negatives: Spec | None, _: Spec | None
) -> tuple[Spec, Spec]:
    require(x.rank == 3, f"X {x} must be (rows, P, K)")
    require(
        matches.rank == 2
        and matches.dtype == VarType.INT32
        and dims_match(matches.shape[0], sequence_count(lod)),
        f"MatchIndices {matches} must be int32 with a row for each sequence of X",
    )
    require(
        negatives is None or negatives.dtype == VarType.INT32,
        f"NegIndices {negatives} must hold int32",
    )
    made = Spec((*matches.shape, x.shape[2]), x.dtype)
    return made, Spec((*matches.shape, 1))


def _samples(r: Any) -> list[Sample]:
    lod = {"X@LOD": Lod([[0, 2, 5]])}
    matches = {"MatchIndices": np.array([[0, -1, 1, -1], [-1, 2, 2, 0]], np.int32)}
    negatives = {
        "NegIndices": np.array([[1], [0], [3]], np.int32),
        "NegIndices@LOD": Lod([[0, 1, 3]]),
    }
    return [
        Sample({"X": r.normal((5, 4, 3))} | lod | matches),
        Sample({"X": r.normal((5, 1, 1))} | lod | matches | negatives, {"mismatch_value": 7}),
        Sample(
            {"X": r.integers(0, 9, (5, 1, 1)).astype(np.int32)} | lod | matches,
            {"mismatch_value": 5},
        ),
    ]


@op(
    "target_assign",
    inputs="X X@LOD MatchIndices NegIndices? NegIndices@LOD?",
    outputs="Out OutWeight",
    infer=_infer,
    no_grad=True,
    samples=_samples,
)
def target_assign(
    xp: Any,
    x: Any,
    lod: Lod,
    matches: Any,
    negatives: Any,
    negative_lod: Lod | None,
    *,
    mismatch_value: int = 0,
) -> tuple[Any, Any]:
    """``x[row, column % P]`` for every match, ``mismatch_value`` elsewhere; weights are 1 and 0.

    ``MatchIndices`` ``(N, M)`` has numbers of rows in the N sequences of X ``(rows, P, K)``, -1 for
    none. Positions in ``NegIndices``, which has sequences, too, get ``mismatch_value`` and weight 1
    (unless K is 1, Paddle gives weights to other positions, or writes out of bounds). Source:
    Paddle op ``target_assign``.
    """
    starts = xp.asarray(lod.offsets[:-1])[:, None]
    matched = matches >= 0
    columns = xp.arange(matches.shape[1]) % x.shape[1]
    rows = xp.where(matched, matches + starts, 0)
    if not len(x):  # there is nothing to match, nor to read
        x = xp.zeros((1, *x.shape[1:]), x.dtype)
    values = xp.where(matched[..., None], x[rows, columns], xp.asarray(mismatch_value, x.dtype))
    weights = matched.astype(np.float32)
    if negative_lod:
        places = (xp.asarray(row_owners(negative_lod)), xp.asarray(to_host(negatives).ravel()))
        values[places] = mismatch_value
        weights[places] = 1
    return values, weights[..., None]
