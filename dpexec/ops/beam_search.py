"""``beam_search``: a step of a beam search on sentences that lie one after another."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

from dpexec.core.dtypes import VarType
from dpexec.core.lod import Lod
from dpexec.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.ops._shapes import require_same_dtype


def _infer(
    pre_ids: Spec,
    pre_scores: Spec,
    ids: Spec | None,
    scores: Spec,
    scores_lod: Spec | None,
    *,
    level: int = 0,
    beam_size: int,
) -> tuple[Spec, Spec, Spec, Spec, Spec]:
    require(pre_ids.dtype == VarType.INT64, f"pre_ids {pre_ids} must be int64")
    require_same_dtype(pre_scores, scores, "pre_scores and scores")
    rows = scores.shape[0]
    for name, spec in (("pre_ids", pre_ids), ("pre_scores", pre_scores)):
        require(dims_match(spec.size, rows), f"{name} {spec} must have a number per row of scores")
    if ids is not None:
        require(
            ids.dtype == VarType.INT64 and dims_match(ids.size, scores.size),
            f"ids {ids} must be int64, with a candidate for each of the scores {scores}",
        )
    require(beam_size > 0, f"beam_size {beam_size} must be positive")
    if scores_lod is not None:
        levels = len(scores_lod.shape)
        require(0 <= level < levels, f"scores have no level {level}, only {levels} levels")
    offsets = Spec((-1, -1), VarType.INT64, VarType.RAW)
    return (
        Spec((-1, 1), VarType.INT64),
        offsets,
        Spec((-1, 1), pre_scores.dtype),
        offsets,
        Spec((-1,), VarType.INT32),
    )


def _search(lod: Lod, pre_ids: Any, scores: Any, ids: Any = None, **attrs: Any) -> Sample:
    inputs = {
        "pre_ids": np.array(pre_ids)[:, None],
        "pre_scores": np.arange(1.0, len(pre_ids) + 1)[:, None] / 10,
        "scores": np.array(scores),
        "scores@LOD": lod,
    }
    if ids is not None:
        inputs["ids"] = np.array(ids)
    return Sample(inputs, {"level": 0, "beam_size": 2, "end_id": 0, **attrs})


_LOD = Lod([[0, 2, 4], [0, 1, 2, 3, 4]])
_IDS = [[4, 2, 5], [2, 1, 3], [3, 5, 2], [8, 2, 1]]
_SCORES = [[0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.9, 0.5, 0.1], [0.7, 0.6, 0.1]]
_TIES = [[0.5, 0.9, 0.5, 0.5, 0.7], [0.5, 0.5, 0.2, 0.6, 0.5]]


@op(
    "beam_search",
    inputs="pre_ids pre_scores ids? scores scores@LOD",
    outputs="selected_ids selected_ids@LOD selected_scores selected_scores@LOD parent_idx?",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        _search(_LOD, [1, 2, 3, 4], _SCORES, _IDS),
        _search(_LOD, [0, 2, 3, 0], _SCORES, _IDS, is_accumulated=False, beam_size=3),
        _search(_LOD, [0, 0, 3, 4], _SCORES, _IDS),  # the first sentence is complete
        _search(Lod([[0, 1, 4]]), [1, 2, 3, 4], np.ones((4, 3)), beam_size=4),
        _search(Lod([[0, 1, 2], [0, 1, 2]]), [1, 2], _TIES, beam_size=3),
    ],
)
def beam_search(
    xp: Any,
    pre_ids: Any,
    pre_scores: Any,
    ids: Any,
    scores: Any,
    scores_lod: Lod,
    *,
    level: int = 0,
    beam_size: int,
    end_id: int,
    is_accumulated: bool = True,
) -> tuple[Any, Lod, Any, Lod, Any]:
    """The ``beam_size`` best ways to go on with each sentence.

    ``scores`` has a row of candidates for each beam; ``level`` of its offsets says which beams are
    of one sentence. They are sums of logarithms, or with ``is_accumulated`` False probabilities
    that come to ``pre_scores``. A beam that has ended only goes on with ``end_id``; a sentence is
    dropped once that is all that it does. Without ``ids`` the candidates are 0, 1, ...

    Returns:
        Candidates and scores, beam by beam, ``(n, 1)``, and the beam before each, ``(n,)``. The
        offsets of the former: the beams of each sentence, the candidates of each beam. Source:
        Paddle op ``beam_search``.
    """
    given = (pre_ids, pre_scores, scores) if ids is None else (pre_ids, pre_scores, scores, ids)
    host = [array if isinstance(array, np.ndarray) else array.get() for array in given]
    before, sums, table, *named = (array.reshape(len(scores), -1) for array in host)
    if not is_accumulated:
        with np.errstate(divide="ignore"):
            table = sums + np.log(table)
    parents, columns = _candidates(before[:, 0] == end_id, table.shape[1])
    ended = before[parents, 0] == end_id
    tokens = np.where(ended, end_id, named[0][parents, columns] if named else columns)
    totals = np.where(ended, sums[parents, 0], table[parents, columns])

    sentences = scores_lod.levels[level]
    for finer in scores_lod.levels[level + 1 :]:
        sentences = finer[sentences]
    chosen = [np.zeros(0, np.int64)]
    for start, stop in Lod([np.searchsorted(parents, sentences)]).spans():
        found = start + _best(totals[start:stop], parents[start:stop], beam_size)
        if not (ended[found] & (tokens[found] == end_id)).all():
            chosen.append(found[np.argsort(parents[found], kind="stable")])
    picked = np.concatenate(chosen)
    lod = Lod([sentences, np.searchsorted(parents[picked], np.arange(len(table) + 1))])
    best = tokens[picked, None], totals[picked, None], parents[picked].astype(np.int32)
    words, scores, beams = map(xp.asarray, best)
    return words, lod, scores, lod, beams


def _candidates(ended: Any, width: int) -> tuple[Any, Any]:
    """Beam and column of all candidates: ``width`` for each beam, but one for those that ended."""
    counts = np.where(ended, 1, width)
    parents = np.repeat(np.arange(len(ended)), counts)
    return parents, np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)


def _best(totals: Any, parents: Any, count: int) -> Any:
    """Positions of the greatest totals in falling order, as Paddle decides between equal ones.

    The later beam wins; of the candidates of one beam the earlier one, but the last place goes to
    whoever comes last.
    """
    positions = np.arange(len(totals))
    if len(totals) > count:
        bound = -np.partition(-totals, count - 1)[count - 1]
        positions = positions[~(totals < bound)]  # others never push any of these out
    kept: list[tuple[tuple[float, int], int]] = []
    for position in positions.tolist():
        rank = (-float(totals[position]), -int(parents[position]))
        if len(kept) == count:
            if rank > kept[-1][0]:
                continue
            kept.pop()
        bisect.insort(kept, (rank, position), key=lambda item: item[0])
    return np.array([position for _, position in kept], np.int64)
