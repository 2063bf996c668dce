"""Beam search: the best continuations of a step, and whole sentences from all steps.

Tables of candidates are flat; sorting by several keys is a stable ``TopK`` for each, the last key
first.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from dpexec.onnx.exporting.builder import Builder, Value, onnx_type
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.refusals import need
from dpexec.onnx.exporting.sequences import Rows

_ZERO, _ONE = np.array(0, np.int64), np.array(1, np.int64)
_LONG = onnx.TensorProto.INT64


def _sorted(g: Builder, keys: Value, largest: bool) -> Value:
    """The places of the keys in their order; of equal ones the first comes first."""
    made: Value = g.TopK(keys, g.Shape(keys), axis=0, largest=int(largest), outputs=2)[1]
    return made


def _count(g: Builder, numbers: Value, size: Value) -> Value:
    """How often each of the numbers 0, 1, ... occurs; ``size`` has no dimensions."""
    every = g.Unsqueeze(g.Range(_ZERO, size, _ONE), [1])
    found = g.cast(g.Equal(every, g.Unsqueeze(numbers, [0])), np.int64)
    made: Value = g.reduce("ReduceSum", found, [1])
    return made


def _total(g: Builder, vector: Value) -> Value:
    """The number of elements, without dimensions."""
    made: Value = g.Squeeze(g.Shape(vector), [0])
    return made


def _rows_of_sentences(c: Call) -> Value:
    """How many rows of the scores each sentence has."""
    g, levels = c.g, c.lengths("scores")
    need(len(levels) > c.attr("level"), "its scores have no sequences of that level")
    made = levels[c.attr("level")]
    for finer in levels[c.attr("level") + 1 :]:
        totals = g.Concat(g.ints(0), g.CumSum(finer, _ZERO), axis=0)
        offsets = g.Gather(totals, g.Concat(g.ints(0), g.CumSum(made, _ZERO), axis=0))
        last = np.iinfo(np.int64).max
        made = g.Sub(g.Slice(offsets, [1], [last]), g.Slice(offsets, [0], [-1]))
    return made


@exports("beam_search")
def beam_search(c: Call) -> None:
    """Candidates sorted by sentence, score and beam; the first ones of each sentence stay."""
    g, beam = c.g, np.array(c.attr("beam_size"), np.int64)
    sentences = Rows(g, _rows_of_sentences(c))
    end = np.array(c.attr("end_id"), np.int64)
    table, sums = c["scores"], g.reshape(c["pre_scores"], -1, 1)
    if not c.attr("is_accumulated"):
        table = g.Add(sums, g.Log(table))
    width = g.Squeeze(g.size(table, 1), [0])
    columns = g.Range(_ZERO, width, _ONE)
    ended = g.Equal(g.reshape(c["pre_ids"], -1, 1), end)
    named = c["ids"] if c.get("ids") is not None else g.Expand(columns, g.Shape(table))
    tokens = g.reshape(g.Where(ended, end, named), -1)
    totals = g.reshape(g.Where(ended, sums, table), -1)
    possible = g.Or(g.Not(ended), g.Equal(g.Unsqueeze(columns, [0]), _ZERO))

    chosen = _best(c, sentences, totals, possible, width, beam)
    alive = g.Not(g.Gather(g.reshape(ended, -1), g.Div(chosen, width)))
    owners = g.Gather(sentences.owners, g.Div(chosen, width))
    going = g.Compress(owners, alive, axis=0)
    left = g.Greater(_count(g, going, _total(g, sentences.lengths)), _ZERO)
    chosen = g.Compress(chosen, g.Gather(left, owners), axis=0)  # of sentences that go on
    chosen = g.Gather(chosen, _sorted(g, g.Div(chosen, width), False))
    parents = g.Div(chosen, width)
    rows = g.Squeeze(g.size(table, 0), [0])
    lengths = [sentences.lengths, _count(g, parents, rows)]
    c.set("selected_ids", g.Unsqueeze(g.Gather(tokens, chosen), [1]), lengths=lengths)
    c.set("selected_scores", g.Unsqueeze(g.Gather(totals, chosen), [1]), lengths=lengths)
    c.set("parent_idx", g.cast(parents, np.int32), lengths=())


def _best(
    c: Call, sentences: Rows, totals: Value, possible: Value, width: Value, beam: np.ndarray
) -> Value:
    """The numbers of the best candidates of each sentence; of equal ones the later beam's wins."""
    g, last = c.g, np.iinfo(np.int64).min
    numbers = g.Reshape(g.Range(_ZERO, g.Size(totals), _ONE), g.Shape(possible))
    backwards = [g.Slice(x, [-1], [last], [0], [-1]) for x in (numbers, possible)]
    found = g.Compress(*(g.reshape(x, -1) for x in backwards), axis=0)  # later beams first
    found = g.Gather(found, _sorted(g, g.Gather(totals, found), True))
    owners = g.Gather(sentences.owners, g.Div(found, width))
    order = _sorted(g, owners, False)
    found, owners = g.Gather(found, order), g.Gather(owners, order)

    runs = Rows(g, _count(g, owners, _total(g, sentences.lengths)))
    keys = [g.Gather(totals, found), g.Div(found, width)]
    changes = [_different(g, key) for key in (*keys, owners)]
    changed = g.Or(g.Or(*changes[:2]), changes[2])
    is_last = g.Concat(changed, g.constant(np.array([True])), axis=0)
    behind = g.Compress(runs.numbers, is_last, axis=0)
    group = g.CumSum(g.cast(is_last, np.int64), _ZERO, exclusive=1)
    places, there = runs.grid(steps=beam)
    chosen = _last_of_equal(g, found, keys, places, there, g.Gather(behind, group))
    made: Value = g.Compress(g.reshape(chosen, -1), g.reshape(there, -1), axis=0)
    return made


def _last_of_equal(
    g: Builder, found: Value, keys: list[Value], places: Value, there: Value, equal_last: Value
) -> Value:
    """The best candidates ``(sentences, beams)``, with Paddle's choice for the last place.

    Paddle goes through the candidates in their order. Once all places are taken, a candidate takes
    the last place from an equal one of its beam; a better one pushes the last place's out. So the
    last one of equal candidates has the last place if all better ones come before it.

    Args:
        g: the graph.
        found: the numbers of all candidates, sorted.
        keys: their totals and beams.
        places: the places of the best ones in ``found``, ``(sentences, beams)``.
        there: whether there is one.
        equal_last: for each candidate, the place of the last one that is equal.
    """
    end = np.iinfo(np.int64).max
    last = g.Slice(places, [-1], [end], [1])
    same = [g.Equal(g.Gather(key, places), g.Gather(key, last)) for key in keys]
    best = g.Gather(found, places)
    better = g.Where(g.And(*same), np.array(-1, np.int64), best)
    latest = g.reduce("ReduceMax", better, [1], True)
    other = g.Gather(found, g.Gather(equal_last, last))
    wins = g.And(g.Greater(other, latest), g.Slice(there, [-1], [end], [1]))
    tail = g.Where(wins, other, g.Slice(best, [-1], [end], [1]))
    made: Value = g.Concat(g.Slice(best, [0], [-1], [1]), tail, axis=1)
    return made


def _different(g: Builder, vector: Value) -> Value:
    """For each element but the last, whether the next one is another number."""
    end = np.iinfo(np.int64).max
    made: Value = g.Not(g.Equal(g.Slice(vector, [0], [-1]), g.Slice(vector, [1], [end])))
    return made


@exports("beam_search_decode")
def beam_search_decode(c: Call) -> None:
    """``Loop`` from the last step to the first: each sentence reads what its tokens follow."""
    g = c.g
    arrays = [c["Ids"], c["Scores"], *c.lengths("Ids")]
    need(len(arrays) == 4, "its steps have no two levels of sequences")
    source, final, sentence, token, score = _walked_back(c, arrays)
    first = g.SequenceAt(arrays[2], _ZERO)
    counts = _count(g, source, _total(g, first))
    order = _sorted(g, final, True)
    order = g.Gather(order, _sorted(g, g.Gather(source, order), False))
    rank = _sorted(g, order, False)
    forwards = _sorted(g, g.Gather(rank, sentence), False)
    tokens = g.Gather(_count(g, sentence, _total(g, order)), order)
    c.set("SentenceIds", g.Gather(token, forwards), lengths=[counts, tokens])
    c.set("SentenceScores", g.Gather(score, forwards), lengths=[counts, tokens])


def _walked_back(c: Call, arrays: list[Value]) -> list[Value]:
    """What the loop over the steps finds.

    Returns:
        For every sentence, its source and the score of its last token; for every token, ordered by
        step, its sentence, the token and its score.
    """
    g, inner, dtype = c.g, c.g.inner(), onnx_type(c.dtype("Scores"))
    steps = g.SequenceLength(arrays[0])
    types = {
        "source": _LONG, "final": dtype, "sentence": _LONG, "token": _LONG, "score": dtype,
        "place": _LONG,
    }  # fmt: skip
    before = {name: inner.unique(f"{g.origin[0]}/{name}") for name in types}
    number, going = (inner.unique(f"{g.origin[0]}/{name}") for name in ("number", "going"))
    step = inner.Sub(inner.Sub(steps, _ONE), number)
    found = [inner.SequenceAt(array, step) for array in arrays]
    after = _step_back(inner, before, found, np.array(c.attr("end_id"), np.int64))
    again = inner.Identity(going)
    body = helper.make_graph(
        inner.nodes, "step",
        [
            helper.make_tensor_value_info(number, _LONG, []),
            helper.make_tensor_value_info(going, onnx.TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(before[n], kind, [None]) for n, kind in types.items()),
        ],
        [
            helper.make_tensor_value_info(again, onnx.TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(after[n], kind, [None]) for n, kind in types.items()),
        ],
    )  # fmt: skip
    real, whole = c.number(np.zeros(0), "Scores"), g.constant(np.zeros(0, np.int64))
    empty = [whole if kind == _LONG else real for kind in types.values()]
    made: list[Value] = g.Loop(steps, None, *empty, body=body, outputs=len(empty))
    return made[:5]


def _step_back(
    g: Builder, before: dict[str, Value], found: list[Value], end: np.ndarray
) -> dict[str, Value]:
    """What is known after one more step.

    Args:
        g: the graph of a step.
        before: what was known, and ``place``, the place of each sentence's token in the step.
        found: tokens and scores of the step, beams of each source, candidates of each beam.
        end: the number of the token that ends a sentence.
    """
    token, score = (g.reshape(each, -1) for each in found[:2])
    beams = Rows(g, found[3]).owners
    owner = g.Gather(Rows(g, found[2]).owners, beams)
    known = g.Equal(g.Unsqueeze(owner, [1]), g.Unsqueeze(before["source"], [0]))
    seen = g.reduce("ReduceSum", g.cast(known, np.int64), [1])
    ending = g.Equal(seen, _ZERO)  # of sources that nothing came after
    numbers = g.Range(_ZERO, _total(g, token), _ONE)
    new = g.Compress(numbers, ending, axis=0)
    place = g.Concat(before["place"], new, axis=0)
    goes_on = g.Not(g.Equal(g.Gather(token, before["place"]), end))
    kept = g.Concat(goes_on, g.Equal(new, new), axis=0)
    taken = g.Compress(place, kept, axis=0)
    sentence = g.Compress(g.Range(_ZERO, _total(g, place), _ONE), kept, axis=0)
    return {
        "source": g.Concat(before["source"], g.Gather(owner, new), axis=0),
        "final": g.Concat(before["final"], g.Gather(score, new), axis=0),
        "sentence": g.Concat(sentence, before["sentence"], axis=0),
        "token": g.Concat(g.Gather(token, taken), before["token"], axis=0),
        "score": g.Concat(g.Gather(score, taken), before["score"], axis=0),
        "place": g.Gather(beams, place),
    }
