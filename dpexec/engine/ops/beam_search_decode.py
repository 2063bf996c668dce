"""``beam_search_decode``: whole sentences from the steps of a beam search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dpexec.engine.core.arrays import Entry, TensorArray
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require


def _infer(ids: Spec, scores: Spec, *, beam_size: int) -> tuple[Spec, Spec, Spec, Spec]:
    for name, spec in (("Ids", ids), ("Scores", scores)):
        require(spec.kind == VarType.LOD_TENSOR_ARRAY, f"{name} {spec} must be a LoDTensorArray")
    require(ids.dtype == VarType.INT64, f"Ids {ids} must be int64")
    require(beam_size > 0, f"beam_size {beam_size} must be positive")
    offsets = Spec((-1, -1), VarType.INT64, VarType.RAW)
    return Spec((-1,), VarType.INT64), offsets, Spec((-1,), scores.dtype), offsets


def _arrays(*steps: tuple[list[list[int]], list[int], list[float]]) -> Sample:
    """A search for two sentences with two beams each."""
    found: dict[str, list[Entry]] = {"Ids": [], "Scores": []}
    for levels, ids, scores in steps:
        found["Ids"].append((np.array(ids)[:, None], Lod(levels)))
        found["Scores"].append((np.array(scores)[:, None], Lod(levels)))
    inputs = {slot: TensorArray(entries) for slot, entries in found.items()}
    return Sample(inputs, {"beam_size": 2, "end_id": 1})


_START = ([[0, 1, 2], [0, 1, 2]], [0, 0], [0.0, 0.0])


@op(
    "beam_search_decode",
    inputs="Ids Scores",
    outputs="SentenceIds SentenceIds@LOD SentenceScores SentenceScores@LOD",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        _arrays(_START, ([[0, 1, 2], [0, 2, 4]], [2, 3, 4, 5], [0.5, 0.4, 0.3, 0.6])),
        _arrays(
            _START,
            ([[0, 1, 2], [0, 2, 4]], [2, 3, 4, 5], [0.5, 0.4, 0.6, 0.3]),
            ([[0, 2, 4], [0, 1, 2, 4, 4]], [3, 1, 8, 1], [0.7, 0.6, 0.9, 0.2]),
            ([[0, 2, 4], [0, 1, 2, 3, 4]], [3, 1, 1, 1], [0.8, 0.6, 0.9, 1.2]),
        ),
        _arrays(  # the first sentence is complete before the last step
            _START,
            ([[0, 1, 2], [0, 2, 4]], [2, 1, 4, 5], [0.5, 0.4, 0.6, 0.3]),
            ([[0, 2, 4], [0, 1, 2, 4, 4]], [1, 1, 8, 1], [0.7, 0.6, 0.9, 0.2]),
            ([[0, 2, 4], [0, 0, 0, 1, 2]], [1, 7], [0.91, 0.8]),
        ),
    ],
)
def beam_search_decode(
    xp: Any, ids: TensorArray, scores: TensorArray, *, beam_size: int, end_id: int
) -> tuple[Any, Lod, Any, Lod]:
    """The sentences that a beam search found, best ones first, and the scores of their tokens.

    ``Ids`` and ``Scores`` are the results of ``beam_search`` in every step, with its offsets, which
    tell the predecessor of each token. A sentence that ended early keeps one ``end_id``.

    Returns:
        Tokens and scores, one-dimensional. The first level of their offsets has the sentences of
        each source, the second the tokens of each sentence. Source: Paddle op
        ``beam_search_decode``.

    Raises:
        ValueError: there are no steps, a step does not have two levels of offsets, or a source has
            more sentences than ``beam_size``.
    """
    steps = list(_steps(ids, scores))
    source, sentence, token, score, final = _walk_back(steps, end_id)
    sources = len(steps[0][2].levels[0]) - 1
    counts = np.bincount(source, minlength=sources)
    if counts.max(initial=0) > beam_size:
        raise ValueError(f"a source has {counts.max()} sentences, but beam_size is {beam_size}")
    order = np.lexsort((-final, source))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    forwards = np.argsort(rank[sentence], kind="stable")
    lod = Lod.of_lengths([counts, np.bincount(sentence, minlength=len(order))[order]])
    return xp.asarray(token[forwards]), lod, xp.asarray(score[forwards]), lod


Step = tuple[Any, Any, Lod]
"""The tokens and scores that a step chose, and the offsets that tell their predecessors."""


def _steps(ids: TensorArray, scores: TensorArray) -> Iterable[Step]:
    if not len(ids) or len(ids) != len(scores):
        raise ValueError(f"Ids has {len(ids)} steps and Scores {len(scores)}: they need as many")
    for number, (tokens, totals) in enumerate(zip(ids, scores, strict=True)):
        if tokens is None or totals is None or len(tokens[1].levels) != 2:
            raise ValueError(f"step {number} of Ids and Scores is no result of a beam search")
        host = (a if isinstance(a, np.ndarray) else a.get() for a in (tokens[0], totals[0]))
        token, score = (array.reshape(-1) for array in host)
        yield token, score, tokens[1]


def _walk_back(steps: list[Step], end_id: int) -> tuple[Any, ...]:
    """Follow all sentences from their last tokens to their first.

    Returns:
        For every sentence, its source; for every token, ordered by step, its sentence, the token
        and its score; for every sentence, the score of its last token.
    """
    source = place = np.zeros(0, np.int64)
    final = np.zeros(0, steps[0][1].dtype)
    found = []
    for token, score, lod in reversed(steps):
        beams, candidates = lod.levels
        owner = np.repeat(np.arange(len(beams) - 1), np.diff(candidates[beams]))
        ending = np.flatnonzero(~np.isin(owner, source))  # of sources that nothing came after
        kept = np.concatenate([token[place] != end_id, np.ones(len(ending), bool)])
        source = np.concatenate([source, owner[ending]])
        final = np.concatenate([final, score[ending]])
        place = np.concatenate([place, ending])
        found.append((np.flatnonzero(kept), token[place[kept]], score[place[kept]]))
        place = np.searchsorted(candidates, place, side="right") - 1
    return source, *map(np.concatenate, zip(*reversed(found), strict=True)), final
