"""``linear_chain_crf``: the likelihood of a tag sequence among all possible ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._rows import added_rows
from dpexec.engine.ops._sequences import sequence_count
from dpexec.engine.ops._steps import Steps
from dpexec.engine.ops._tagging import check_tags, checked_tags, steps_through


def _infer(
    emission: Spec,
    lod: Spec | None,
    transition: Spec,
    label: Spec,
    label_lod: Spec | None,
    length: Spec | None,
) -> tuple[Spec, Spec, Spec, Spec]:
    check_tags(emission, transition, label, length)
    count = emission.shape[0] if length is not None else sequence_count(lod or label_lod)
    plain = emission.replace(lod_level=0)
    return plain, plain, transition.replace(lod_level=0), plain.replace(shape=(count, 1))


def _samples(r: Any) -> list[Sample]:
    lods = [Lod([[0, 3, 4, 6]]), Lod([[0, 2, 2, 5]]), Lod([[0, 1, 5]])]
    found = [
        Sample(
            {
                "Emission": r.normal((lod.rows, tags)),
                "Emission@LOD": lod,
                "Transition": r.normal((tags + 2, tags)),
                "Label": r.integers(0, tags, (lod.rows, 1)),
                "Label@LOD": lod,
            }
        )
        for lod, tags in zip(lods, (3, 2, 4), strict=True)
    ]
    for shape in ((3, 4), (3, 4, 1)):
        found.append(
            Sample(
                {
                    "Emission": r.normal((3, 4, 3)),
                    "Transition": r.normal((5, 3)),
                    "Label": r.integers(0, 3, shape),
                    "Length": np.array([[2], [4], [1]]),
                }
            )
        )
    return found


def _score(xp: Any, steps: Steps, rows: Any, transition: Any, tags: Any) -> Any:
    """The score of the given tags, for every sequence that is not empty."""
    begins, later = slice(steps.running), slice(steps.running, None)
    ends = xp.asarray(steps.last)
    taken = rows[xp.arange(len(tags)), tags]
    taken[begins] += transition[0, tags[begins]]
    taken[ends] += transition[1, tags[ends]]
    taken[later] += transition[2 + steps.before(xp, tags, None)[later], tags[later]]
    return steps.totals(xp, taken)


def _weights(xp: Any, transition: Any) -> tuple[Any, tuple[Any, Any, Any]]:
    """Exponentials of the scores of begins, ends and pairs, each less its maximum; the maxima."""
    tops = transition[0].max(), transition[1].max(), transition[2:].max()
    above = transition.copy()
    above[0] -= tops[0]
    above[1] -= tops[1]
    above[2:] -= tops[2]
    return xp.exp(above, out=above), tops


def _forward(xp: Any, steps: Steps, exps: Any, weights: Any) -> tuple[Any, Any]:
    """The probabilities of tags after each step, and the sums that normalize them."""
    alpha, sums = exps.copy(), xp.empty(len(exps), exps.dtype)
    before = None
    for begin, end in steps.spans:
        now = alpha[begin:end]
        now *= weights[0] if before is None else before[: end - begin] @ weights[2:]
        now.sum(axis=1, out=sums[begin:end])
        now /= sums[begin:end, None]
        before = now
    return alpha, sums


def _backward(xp: Any, steps: Steps, exps: Any, weights: Any) -> Any:
    """The likelihood of the steps after each step, by its tag, up to a factor for each row."""
    beta = xp.empty_like(exps)
    beta[...] = weights[1]
    for (begin, _), (now, end) in zip(steps.spans[-2::-1], steps.spans[:0:-1], strict=True):
        here = (exps[now:end] * beta[now:end]) @ weights[2:].T
        beta[begin : begin + end - now] = here / here.sum(axis=1, keepdims=True)
    return beta


@op(
    "linear_chain_crf",
    inputs="Emission Emission@LOD? Transition Label Label@LOD? Length?",
    outputs="Alpha EmissionExps TransitionExps LogLikelihood",
    infer=_infer,
    checks_values=True,
    samples=_samples,
    operand_ulps=4,
    grad_lod="own",
)
def linear_chain_crf(
    xp: Any,
    emission: Any,
    lod: Lod | None,
    transition: Any,
    label: Any,
    label_lod: Lod | None,
    length: Any,
) -> tuple[Any, Any, Any, Any]:
    """The negative log-likelihood of each sequence of tags, ``(sequences, 1)``.

    ``Emission`` has the scores of tags in rows; ``Transition`` those of tags at the beginning (row
    0), at the end (row 1), and after each other tag. The inputs have sequences or, with ``Length``,
    are padded. The other outputs are for the gradient; ``Alpha`` is 0 for padding.
    Source: Paddle op ``linear_chain_crf``; Lafferty, McCallum, Pereira, 2001.

    Raises:
        ValueError: there is no such tag, a length is greater than the width, or labels have other
            sequences.
    """
    steps, count = steps_through(emission.shape, (lod, label_lod), length), transition.shape[1]
    rows = emission.reshape(-1, count)
    tags = steps.gather(xp, checked_tags(xp, label, count))
    top = rows.max(axis=1, keepdims=True)
    exps, (weights, tops) = xp.exp(rows - top), _weights(xp, transition)
    alpha, sums = _forward(xp, steps, steps.gather(xp, exps), weights)
    more = xp.where(xp.arange(len(sums)) < steps.running, tops[0], tops[2])
    costs = steps.totals(xp, xp.log(sums) + steps.gather(xp, top)[:, 0] + more)
    costs += xp.log(alpha[xp.asarray(steps.last)] @ weights[1]) + tops[1]
    costs -= _score(xp, steps, steps.gather(xp, rows), transition, tags)
    alpha = steps.scatter(xp, alpha, len(rows))
    shape = emission.shape
    made = alpha.reshape(shape), exps.reshape(shape), xp.exp(transition)
    return *made, steps.spread(xp, costs)[:, None]


@linear_chain_crf.grad(
    "Emission Emission@LOD? Transition Label Label@LOD? Length?",
    "Alpha EmissionExps TransitionExps LogLikelihood@GRAD",
    outputs="Emission@GRAD Transition@GRAD",
    operand_ulps=2,
)
def linear_chain_crf_grad(
    xp: Any,
    emission: Any,
    lod: Lod | None,
    transition: Any,
    label: Any,
    label_lod: Lod | None,
    length: Any,
    alpha: Any,
    exps: Any,
    weights: Any,
    d_costs: Any,
    *,
    needs: Sequence[bool] = (True, True),
) -> tuple[Any, Any]:
    """The probability of each tag, less 1 for the right one."""
    steps, count = steps_through(emission.shape, (lod, label_lod), length), transition.shape[1]
    tags = steps.gather(xp, label.reshape(-1))
    alpha, exps = (steps.gather(xp, values.reshape(-1, count)) for values in (alpha, exps))
    weights, _ = _weights(xp, transition)  # the exponentials of the scores may be infinite
    beta = _backward(xp, steps, exps, weights)
    flow = steps.first(xp, d_costs.reshape(-1))[xp.asarray(steps.positions)]
    d_rows = alpha * beta
    d_rows /= d_rows.sum(axis=1, keepdims=True)
    right = xp.arange(len(tags)), tags
    d_rows[right] = 0
    d_rows[right] = -d_rows.sum(axis=1)  # p - 1 would be wrong where p is nearly 1
    d_rows *= flow[:, None]
    d_emission = d_transition = None
    if needs[0]:
        d_emission = steps.scatter(xp, d_rows, emission.size // count).reshape(emission.shape)
    if needs[1]:
        d_transition = xp.empty_like(transition)
        d_transition[0] = d_rows[: steps.running].sum(axis=0)
        d_transition[1] = d_rows[xp.asarray(steps.last)].sum(axis=0)
        exps *= beta
        d_transition[2:] = _pairs_grad(xp, steps, (alpha, exps, tags, flow), weights[2:])
    return d_emission, d_transition


def _pairs_grad(xp: Any, steps: Steps, values: tuple[Any, Any, Any, Any], weights: Any) -> Any:
    """The gradient of the scores of tags after each other tag."""
    later, count = slice(steps.running, None), len(weights)
    before, here, tags, flow = values
    before, here = steps.before(xp, before, None)[later], here[later]
    here = here * (flow[later] / ((before @ weights) * here).sum(axis=1))[:, None]
    pairs = steps.before(xp, tags, None)[later] * count + tags[later]
    right = added_rows(xp, pairs, flow[later, None], (count * count, 1))
    return before.T @ here * weights - right.reshape(count, count)
