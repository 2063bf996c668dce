"""Linear-chain CRFs: the likelihood of a tag sequence, and the most likely one.

The matrix of transition scores has a row of start scores, a row of end scores, and then a row for
each tag. Weights are the exponentials of these scores, in the same layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.math import exp, exp_bounded, inner_product, largest, log
from dpexec.engine.kernels.sequences import in_bounds
from dpexec.engine.kernels.softmax import add_up

__all__: list[str] = []

_ZERO = np.float32(0)


@kernel
def _same(n: Count, mine: Integers, theirs: Integers) -> int:
    """Refuse offsets that differ. Arguments: how many, offsets, offsets."""
    for i in range(n):
        if mine[i] != theirs[i]:
            return 1
    return 0


@kernel
def _there_are(rows: Count, right: Integers, tags: Count) -> int:
    """Refuse tags out of range. Arguments: number of rows, their tags, number of tags."""
    for row in range(rows):
        if right[row] < 0 or right[row] >= tags:
            return 1
    return 0


@inline
def _relative(chain: Any, tags: int, out: Any) -> None:
    """Weights, scaled so that the largest start, end and pair weights are 1."""
    for part in range(3):
        start, n = part * tags, tags if part < 2 else tags * tags
        top = largest(chain, start, n)
        for i in range(start, start + n):
            out[i] = exp(chain[i] - top)


@kernel
def _weights(tags: Count, chain: Floats, out: Floats) -> int:
    """The weights of transitions. Arguments: number of tags, scores, result."""
    _relative(chain, tags, out)
    return 0


@inline
def _onward(x: Any, start: int, weights: Any, tags: int, out: Any) -> None:
    """A row of tag weights times the weights of transitions."""
    for j in range(tags):
        out[j] = _ZERO
    for i in range(tags):
        for j in range(tags):
            out[j] += x[start + i] * weights[(2 + i) * tags + j]


@inline
def _score(chain: Any, tags: int, right: Any, row: int, first: int) -> Any:
    """The score of the transition to a tag, or of the start at the first row."""
    return chain[(0 if row == first else 2 + right[row - 1]) * tags + right[row]]


@kernel
def _likelihood(
    sequences: Count, tags: Count, offsets: Integers, x: Floats, chain: Floats, right: Integers,
    alpha: Floats, exps: Floats, weights: Floats, costs: Floats, made: Floats, relative: Floats,
) -> int:  # fmt: skip
    """The negative log-likelihoods of tag sequences.

    Arguments: sequences, tags, offsets, emission scores, transition scores, the right tags;
        results: forward probabilities at each row, exponentials of both scores, costs; memory for a
        row, and for weights.
    """
    for i in range((tags + 2) * tags):
        weights[i] = exp(chain[i])
    weights = relative
    _relative(chain, tags, weights)
    begin, between = largest(chain, 0, tags), largest(chain, 2 * tags, tags * tags)
    for sequence in range(sequences):
        first, end, cost = offsets[sequence], offsets[sequence + 1], _ZERO
        for row in range(first, end):
            r = row * tags
            top = largest(x, r, tags)
            for j in range(tags):
                exps[r + j] = exp_bounded(x[r + j] - top)
            if row == first:
                for j in range(tags):
                    made[j] = weights[j]
            else:
                _onward(alpha, r - tags, weights, tags, made)
            for j in range(tags):
                alpha[r + j] = exps[r + j] * made[j]
            total = add_up(alpha, r, tags)
            for j in range(tags):
                alpha[r + j] /= total
            top += begin if row == first else between
            cost += log(total) + top - x[r + right[row]] - _score(chain, tags, right, row, first)
        if first < end:
            cost += log(inner_product(alpha, (end - 1) * tags, weights, tags, tags))
            cost += largest(chain, tags, tags) - chain[tags + right[end - 1]]
        costs[sequence] = cost
    return 0


@kernel
def _likelihood_grad(
    sequences: Count, tags: Count, offsets: Integers, right: Integers, alpha: Floats, exps: Floats,
    weights: Floats, flow: Floats, beta: Floats, dx: Floats,
) -> int:  # fmt: skip
    """The gradient of the emission scores.

    Arguments: sequences, tags, offsets, the right tags, forward probabilities, exponentials of both
    scores, gradient of the costs; results: backward probabilities, gradient of the scores.
    """
    for sequence in range(sequences):
        first, end = offsets[sequence], offsets[sequence + 1]
        for row in range(end - 1, first - 1, -1):
            r = row * tags
            if row == end - 1:
                for j in range(tags):
                    beta[r + j] = weights[tags + j]
            else:
                for i in range(tags):
                    beta[r + i] = inner_product(weights, (2 + i) * tags, dx, r + tags, tags)
                total = add_up(beta, r, tags)
                for i in range(tags):
                    beta[r + i] /= total
            for j in range(tags):  # weights that the row before this one reads
                dx[r + j] = exps[r + j] * beta[r + j]
        for row in range(first, end):
            r = row * tags
            share = flow[sequence] / inner_product(alpha, r, beta, r, tags)
            for j in range(tags):
                dx[r + j] = alpha[r + j] * beta[r + j] * share
            dx[r + right[row]] = _ZERO  # p - 1 would be wrong where p is nearly 1
            dx[r + right[row]] = -add_up(dx, r, tags)
    return 0


@kernel
def _chain_grad(
    sequences: Count, tags: Count, offsets: Integers, right: Integers, alpha: Floats, exps: Floats,
    weights: Floats, flow: Floats, beta: Floats, dx: Floats, out: Floats, here: Floats,
) -> int:  # fmt: skip
    """The gradient of the transition scores.

    Arguments: as for that of the emission scores, which is known by now; the result; memory for a
    row.
    """
    for i in range((tags + 2) * tags):
        out[i] = _ZERO
    for sequence in range(sequences):
        first, end = offsets[sequence], offsets[sequence + 1]
        for row in range(first, end):
            r, before = row * tags, (row - 1) * tags
            for j in range(tags):
                out[j] += dx[r + j] if row == first else _ZERO
                out[tags + j] += dx[r + j] if row == end - 1 else _ZERO
            if row == first:
                continue
            _onward(alpha, before, weights, tags, here)
            for j in range(tags):
                here[j] *= exps[r + j] * beta[r + j]
            share = flow[sequence] / add_up(here, 0, tags)
            for j in range(tags):
                here[j] = exps[r + j] * beta[r + j] * share
            for i in range(tags):
                o = (2 + i) * tags
                for j in range(tags):
                    out[o + j] += alpha[before + i] * weights[o + j] * here[j]
            out[(2 + right[row - 1]) * tags + right[row]] -= flow[sequence]
    return 0


def _offsets_of(
    code: Code, lod: Value | None, label_lod: Value | None, rows: Any
) -> tuple[Any, Value] | None:
    """Number of sequences and their offsets, which labels must have, too; None: there are none."""
    found = lod or label_lod
    if found is None or (label_lod is not None and found.shape[0] != label_lod.shape[0]):
        return None
    code.emit(in_bounds, found.shape[0] - 1, found, rows)
    if lod is not None and label_lod is not None:
        code.emit(_same, found.shape[0], lod, label_lod)
    return found.shape[0] - 1, found


def _is_code(emission: Value, transition: Value, label: Value | None, length: Value | None) -> bool:
    whole = label is None or label.dtype == "int64"
    return length is None and whole and single(emission, transition)


@lowering("linear_chain_crf")
def linear_chain_crf(
    code: Code, emission: Value, lod: Value | None, transition: Value, label: Value,
    label_lod: Value | None, length: Value | None, alpha: Value | None, exps: Value | None,
    weights: Value | None, costs: Value,
) -> Any:  # fmt: skip
    """One pass over the rows, if they are not padded."""
    if not _is_code(emission, transition, label, length):
        return False
    rows, tags = emission.shape
    found = _offsets_of(code, lod, label_lod, rows)
    if found is None:
        return False
    code.emit(_there_are, rows, label, tags)
    made = [alpha or code.scratch(rows, tags), exps or code.scratch(rows, tags)]
    made += [weights or code.scratch(*transition.shape), costs, code.scratch(tags)]
    made.append(code.scratch(*transition.shape))
    code.emit(_likelihood, found[0], tags, found[1], emission, transition, label, *made)


@lowering("linear_chain_crf_grad")
def linear_chain_crf_grad(
    code: Code, emission: Value, lod: Value | None, transition: Value, label: Value,
    label_lod: Value | None, length: Value | None, alpha: Value, exps: Value, weights: Value,
    d_costs: Value, dx: Value | None, d_transition: Value | None,
) -> Any:  # fmt: skip
    """Two passes over the rows, and one for the transition scores."""
    found = lod or label_lod
    if found is None or not _is_code(emission, transition, label, length) or not single(d_costs):
        return False
    rows, tags = emission.shape
    relative = code.scratch(*transition.shape)
    code.emit(_weights, tags, transition, relative)
    known = alpha, exps, relative, d_costs, code.scratch(rows, tags)
    d_rows = dx or code.scratch(rows, tags)
    sizes = found.shape[0] - 1, tags, found, label
    code.emit(_likelihood_grad, *sizes, *known, d_rows)
    if d_transition is not None:
        code.emit(_chain_grad, *sizes, *known, d_rows, d_transition, code.scratch(tags))


# ---- the likeliest tags


@kernel
def _likeliest(
    sequences: Count, tags: Count, offsets: Integers, x: Floats, chain: Floats, best: Floats,
    came_from: Integers, out: Integers,
) -> int:  # fmt: skip
    """The likeliest tags (Viterbi, 1967).

    Arguments: sequences, tags, offsets, emission scores, transition scores; the best score up to
    each row by its tag, and the tag before it; the result.
    """
    for sequence in range(sequences):
        first, end = offsets[sequence], offsets[sequence + 1]
        for row in range(first, end):
            r, before = row * tags, (row - 1) * tags
            for j in range(tags):
                found, score = 0, chain[j] if row == first else best[before] + chain[2 * tags + j]
                for i in range(1, tags * (row > first)):
                    other = best[before + i] + chain[(2 + i) * tags + j]
                    found, score = (i, other) if other > score else (found, score)
                came_from[r + j] = found
                best[r + j] = score + x[r + j]
        tag = 0
        for j in range(tags * (first < end)):
            best[(end - 1) * tags + j] += chain[tags + j]
            tag = j if best[(end - 1) * tags + j] > best[(end - 1) * tags + tag] else tag
        for row in range(end - 1, first - 1, -1):
            out[row] = tag
            tag = came_from[row * tags + tag]
    return 0


@kernel
def _compare(rows: Count, right: Integers, out: Integers) -> int:
    """1 where a tag is right, else 0. Arguments: rows, right tags, tags, which are overwritten."""
    for row in range(rows):
        out[row] = 1 if out[row] == right[row] else 0
    return 0


@lowering("crf_decoding")
def crf_decoding(
    code: Code, emission: Value, lod: Value | None, transition: Value, label: Value | None,
    label_lod: Value | None, length: Value | None, path: Value,
) -> Any:  # fmt: skip
    """One pass over the rows, if they are not padded, and one back."""
    if not _is_code(emission, transition, label, length):
        return False
    rows, tags = emission.shape
    found = _offsets_of(code, lod, label_lod, rows)
    if found is None:
        return False
    best, came_from = code.scratch(rows, tags), code.scratch(rows, tags, dtype=np.int64)
    places = found[1], emission, transition, best, came_from, path
    code.emit(_likeliest, found[0], tags, *places)
    if label is not None:
        code.emit(_compare, rows, label, path)
