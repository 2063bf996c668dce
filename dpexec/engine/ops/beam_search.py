"""``beam_search``: a step of a beam search over concatenated sentences."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import require_same_dtype, same_dims


def _infer(
    pre_ids: Spec,
    pre_scores: Spec,
    ids: Spec | None,
    scores: Spec,
    scores_lod: Spec | None,
    *,
    level: int,
    beam_size: int,
) -> tuple[Spec, Spec, Spec, Spec, Spec]:
    require(pre_ids.dtype == VarType.INT64, f"pre_ids {pre_ids} must be int64")
    require_same_dtype(pre_scores, scores, "pre_scores and scores")
    require(scores.rank == 2, f"scores {scores} must have a row of candidates for each beam")
    rows = scores.shape[0]
    for name, spec in (("pre_ids", pre_ids), ("pre_scores", pre_scores)):
        require(dims_match(spec.size, rows), f"{name} {spec} must have a number per row of scores")
    if ids is not None:
        require(
            ids.dtype == VarType.INT64 and same_dims(ids.shape, scores.shape),
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
    level: int,
    beam_size: int,
    end_id: int,
    is_accumulated: bool = True,
) -> tuple[Any, Lod, Any, Lod, Any]:
    """The ``beam_size`` best continuations of each sentence.

    ``scores`` has a row of candidates for each beam; the offsets of level ``level`` divide beams
    into sentences. Scores are sums of logarithms; with ``is_accumulated`` False they are
    probabilities, whose logarithms are added to ``pre_scores``. The only continuation of an ended
    beam is ``end_id``; a sentence is dropped when all its beams have ended. Without ``ids`` the
    candidates are 0, 1, ...

    Returns:
        Candidates and scores, beam by beam, ``(n, 1)``, and the previous beam of each, ``(n,)``.
        The offsets of the former have two levels: the beams of each sentence, and the candidates of
        each beam. Source: Paddle op ``beam_search``.
    """
    given = (pre_ids, pre_scores, scores) if ids is None else (pre_ids, pre_scores, scores, ids)
    host = [array if isinstance(array, np.ndarray) else array.get() for array in given]
    before, sums, table, *named = host[0].reshape(-1), host[1].reshape(-1), *host[2:]
    if not is_accumulated:
        with np.errstate(divide="ignore"):
            table = sums[:, None] + np.log(table)
    parents, columns = _candidates(table, before == end_id, beam_size)
    ended = before[parents] == end_id
    tokens = np.where(ended, end_id, named[0][parents, columns] if named else columns)
    totals = np.where(ended, sums[parents], table[parents, columns])

    sentences = scores_lod.levels[level]
    for finer in scores_lod.levels[level + 1 :]:
        sentences = finer[sentences]
    bounds = np.searchsorted(parents, sentences)
    owners = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    found = _best(totals, parents, owners, bounds, beam_size)
    goes_on = ~(ended[found] & (tokens[found] == end_id))
    found = found[np.isin(owners[found], owners[found[goes_on]])]
    picked = found[np.argsort(parents[found], kind="stable")]
    lod = Lod([sentences, np.searchsorted(parents[picked], np.arange(len(table) + 1))])
    best = tokens[picked, None], totals[picked, None], parents[picked].astype(np.int32)
    words, scores, beams = map(xp.asarray, best)
    return words, lod, scores, lod, beams


def _candidates(table: Any, ended: Any, count: int) -> tuple[Any, Any]:
    """Beam and column of candidates that may be among the ``count`` best; one per ended beam."""
    possible = np.ones(table.shape, bool)
    if table.shape[1] > count:
        possible = ~(table < _least(table, count)[:, None])
    possible[ended] = False
    possible[ended, 0] = True
    beams, columns = np.nonzero(possible)
    return beams, columns


def _least(scores: Any, count: int) -> Any:
    """The smallest of the ``count`` greatest elements in each row; no smaller one is chosen."""
    return -np.partition(-scores, count - 1)[..., count - 1]


def _best(totals: Any, parents: Any, owners: Any, bounds: Any, count: int) -> Any:
    """Positions of the greatest totals of each sentence in falling order.

    Args:
        totals: totals of all candidates.
        parents: their beams.
        owners: their sentences.
        bounds: where the candidates of each sentence begin, and where the last ones end.
        count: number of candidates to choose for each sentence.
    """
    order = np.lexsort((-parents, -totals, owners))
    places = np.arange(len(order)) - bounds[owners[order]]
    found = order[places < count]
    out = np.flatnonzero(places == count)  # the first of each sentence that is left out
    last, first_out = order[out - 1], order[out]
    equal = (totals[last] == totals[first_out]) & (parents[last] == parents[first_out])
    unclear = range(len(bounds) - 1) if np.isnan(totals).any() else owners[first_out[equal]]
    for sentence in unclear:
        start, stop = bounds[sentence : sentence + 2]
        chosen = _best_of_equal(totals[start:stop], parents[start:stop], count)
        found[owners[found] == sentence] = start + chosen
    return found


def _best_of_equal(totals: Any, parents: Any, count: int) -> Any:
    """Positions of the greatest totals in falling order, with Paddle's choice among equal ones.

    The later beam wins; of equal candidates of one beam, the earlier one wins, except that the last
    place goes to the last candidate.
    """
    positions = np.arange(len(totals))
    if len(totals) > count:
        positions = positions[~(totals < _least(totals, count))]
    kept: list[tuple[tuple[float, int], int]] = []
    for position in positions.tolist():
        rank = (-float(totals[position]), -int(parents[position]))
        if len(kept) == count:
            if rank > kept[-1][0]:
                continue
            kept.pop()
        bisect.insort(kept, (rank, position), key=lambda item: item[0])
    return np.array([position for _, position in kept], np.int64)
