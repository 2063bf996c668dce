"""``crf_decoding``: the most likely sequence of tags."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._steps import Steps
from dpexec.engine.ops._tagging import check_tags, steps_through


def _infer(
    emission: Spec,
    _: Spec | None,
    transition: Spec,
    label: Spec | None,
    __: Spec | None,
    length: Spec | None,
) -> Spec:
    check_tags(emission, transition, label, length)
    shape = (emission.shape[0], 1) if length is None else emission.shape[:2]
    return emission.replace(shape=shape, dtype=VarType.INT64)


def _samples(r: Any) -> list[Sample]:
    lod, empty = Lod([[0, 3, 4, 6]]), Lod([[0, 2, 2, 5]])
    chain, padded = r.normal((6, 4)), r.normal((3, 4, 3))
    lengths = {"Transition": r.normal((5, 3)), "Length": np.array([[2], [4], [1]])}
    return [
        Sample({"Emission": r.normal((6, 4)), "Emission@LOD": lod, "Transition": chain}),
        Sample(
            {
                "Emission": r.normal((5, 4)),
                "Emission@LOD": empty,
                "Transition": chain,
                "Label": r.integers(0, 4, (5, 1)),
                "Label@LOD": empty,
            }
        ),
        Sample({"Emission": padded, **lengths}),
        Sample({"Emission": padded, "Label": r.integers(0, 3, (3, 4)), **lengths}),
        Sample(
            {
                "Emission": np.array([[2.0, 0.0], [1.0, 2.0]]),
                "Emission@LOD": Lod([[0, 2]]),
                "Transition": np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [0.0, 0.0]]),
            },
            expected={"ViterbiPath": np.array([[0], [0]])},
        ),
    ]


def _best_tags(xp: Any, steps: Steps, rows: Any, transition: Any) -> Any:
    """The best tag for every row of the steps (Viterbi, 1967)."""
    scores, came_from = rows.copy(), xp.zeros(rows.shape, np.int64)
    scores[: steps.running] += transition[0]
    for (begin, _), (now, end) in zip(steps.spans, steps.spans[1:], strict=False):
        ways = scores[begin : begin + end - now, :, None] + transition[2:]
        came_from[now:end] = ways.argmax(axis=1)
        scores[now:end] += ways.max(axis=1)
    ends = xp.asarray(steps.last)
    scores[ends] += transition[1]
    tags = scores.argmax(axis=1)
    for (begin, _), (now, end) in zip(steps.spans[-2::-1], steps.spans[:0:-1], strict=True):
        here = xp.arange(now, end)
        tags[begin : begin + end - now] = came_from[here, tags[now:end]]
    return tags


@op(
    "crf_decoding",
    inputs="Emission Emission@LOD? Transition Label? Label@LOD? Length?",
    outputs="ViterbiPath",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=_samples,
)
def crf_decoding(
    xp: Any,
    emission: Any,
    lod: Lod | None,
    transition: Any,
    label: Any,
    label_lod: Lod | None,
    length: Any,
) -> Any:
    """The likeliest tags of each sequence, int64; with ``Label``, 1 where they are right, else 0.

    Inputs are those of ``linear_chain_crf``. The result is ``(rows, 1)``, or ``(batch, T)`` for
    padded sequences, where padding gets 0. Source: Paddle op ``crf_decoding``.

    Raises:
        ValueError: a length is greater than the width, or labels have other sequences.
    """
    steps = steps_through(emission.shape, (lod, label_lod), length)
    rows = emission.reshape(-1, transition.shape[1])
    best = _best_tags(xp, steps, steps.gather(xp, rows), transition)
    if label is not None:
        best = (best == steps.gather(xp, label.reshape(-1))).astype(np.int64)
    tags = steps.scatter(xp, best, len(rows))
    return tags.reshape((-1, 1) if length is None else emission.shape[:2])
