"""Predictions of detectors matched with objects, and the targets of the predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.generate import compiled, single
from dpexec.engine.kernels.lowering import Code, Offsets, Ragged, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, Number, Words, kernel
from dpexec.engine.kernels.sequences import copy_offsets, in_bounds
from dpexec.engine.ops.bipartite_match import TINY

__all__: list[str] = []

_ZERO, _INFINITY = np.float32(0), np.float32(np.inf)
_LEAST = np.float32(TINY)


@inline
def _above(value: Any, best: Any) -> Any:
    """Whether a number is the new greatest one: NaN is, as for NumPy."""
    return value > best or (value != value and best == best)


@inline
def _best_column(scores: Any, row: int, columns: int, matches: Any, first: int) -> Any:
    """The first of the free columns with the greatest score of a row; -1 for none."""
    found, best = -1, -_INFINITY
    for column in range(columns):
        if matches[first + column] < 0:
            value = scores[row * columns + column]
            if found < 0 or _above(value, best):
                found, best = column, value
    return found


@inline
def _best_row(scores: Any, start: int, stop: int, columns: int, wanted: Any) -> int:
    """The row with the best pair that is left: of equal ones, the first column's; -1 for none."""
    chosen, top = -1, -_INFINITY
    for row in range(start, stop):
        column = wanted[row]
        if column < 0:
            continue
        value = scores[row * columns + column]
        same = value == top or (value != value and top != top)
        earlier = same and chosen >= 0 and column < wanted[chosen]
        if chosen < 0 or earlier or _above(value, top):
            chosen, top = row, value
    return chosen


@kernel
def _match(
    images: Count, columns: Count, offsets: Integers, scores: Floats, wanted: Integers,
    matches: Words, best: Floats,
) -> int:  # fmt: skip
    """Give every row of an image a column, the best pairs first.

    Arguments: images, columns; offsets of the rows of images, scores; memory for a number for each
        row; results: row and score of every column.
    """
    for image in range(images):
        start, stop, first = offsets[image], offsets[image + 1], image * columns
        for column in range(columns):
            matches[first + column], best[first + column] = -1, _ZERO
        for row in range(start, stop):
            wanted[row] = _best_column(scores, row, columns, matches, first)
        for _ in range(min(stop - start, columns)):
            chosen = _best_row(scores, start, stop, columns, wanted)
            if chosen < 0 or scores[chosen * columns + wanted[chosen]] < _LEAST:
                break
            taken = wanted[chosen]
            matches[first + taken] = chosen - start
            best[first + taken] = scores[chosen * columns + taken]
            wanted[chosen] = -1
            for row in range(start, stop):
                if wanted[row] == taken:
                    wanted[row] = _best_column(scores, row, columns, matches, first)
    return 0


@kernel
def _match_rest(
    images: Count, columns: Count, offsets: Integers, scores: Floats, threshold: Number,
    matches: Words, best: Floats,
) -> int:  # fmt: skip
    """Give columns that are left the row of their greatest score.

    Arguments: images, columns; offsets of the rows of images, scores; the least score; results.
    """
    for image in range(images):
        start, stop, first = offsets[image], offsets[image + 1], image * columns
        for column in range(columns if start < stop else 0):
            if matches[first + column] >= 0:
                continue
            chosen, top = start, scores[start * columns + column]
            for row in range(start + 1, stop):
                value = scores[row * columns + column]
                if _above(value, top):
                    chosen, top = row, value
            if top >= threshold:
                matches[first + column], best[first + column] = chosen - start, top
    return 0


@lowering("bipartite_match")
def bipartite_match(
    code: Code, scores: Value, lod: Value | None, matches: Value, best: Value | None,
    *, match_type: str, dist_threshold: float,
) -> Any:  # fmt: skip
    """One look at every score, and again at rows whose column another one has taken."""
    if not single(scores):
        return False
    (rows, columns), images = scores.shape, matches.shape[0]
    best = best or code.scratch(images, columns)
    if lod is None:
        lod = code.scratch(2, dtype=np.int64)
        code.emit(_whole, rows, lod)
    code.emit(in_bounds, images, lod, rows)
    wanted = code.scratch(rows, dtype=np.int64)
    code.emit(_match, images, columns, lod, scores, wanted, matches, best)
    if match_type == "per_prediction":
        least = float(max(dist_threshold, TINY))
        code.emit(_match_rest, images, columns, lod, scores, least, matches, best)


@kernel
def _whole(rows: Count, offsets: Integers) -> int:
    """Offsets of a single sequence. Arguments: its rows, offsets."""
    offsets[0], offsets[1] = 0, rows
    return 0


# ---- hard examples


@inline
def _before(a: Any, b: Any) -> Any:
    """Whether a key sorts before another one; NaN comes last."""
    return a < b or (a == a and b != b)


@inline
def _sort(keys: Any, order: Any, n: int) -> int:
    """Sort numbers from 0 by their keys; equal ones stay in order.

    Returns:
        Where in ``order``, which has room for twice as many, the result begins.
    """
    source, width = 0, 1
    for i in range(n):
        order[i] = i
    while width < n:
        target = n - source
        for start in range(0, n, 2 * width):
            middle, end = min(start + width, n), min(start + 2 * width, n)
            i, j = start, middle
            for k in range(start, end):
                take = j >= end
                if i < middle and j < end:
                    take = not _before(keys[order[source + j]], keys[order[source + i]])
                if take:
                    order[target + k] = order[source + i]
                    i += 1
                else:
                    order[target + k] = order[source + j]
                    j += 1
        source, width = target, 2 * width
    return source


@kernel
def _mine(
    images: Count, columns: Count, loss: Floats, located: Count, location: Floats, matches: Words,
    scores: Floats, hard: Count, ratio: Number, limit: Number, size: Count, keys: Floats,
    order: Integers, negatives: Words, offsets: Integers, out: Words,
) -> int:  # fmt: skip
    """Choose the predictions with the greatest losses.

    Arguments: images, predictions of each; losses; whether those of locations are added, these;
        matches and their scores; whether all predictions may be chosen; how many there are for each
        match, the least score that is too good, and how many there are if all may be chosen; memory
        for a key of each prediction, and for two numbers; results: chosen ones without a match,
        their offsets, matches.
    """
    offsets[0], found = 0, 0
    for image in range(images):
        first, matched, eligible = image * columns, 0, 0
        for j in range(columns):
            at = first + j
            matched += 1 if matches[at] >= 0 else 0
            may = hard or (matches[at] < 0 and scores[at] < limit)
            value = loss[at] + location[at] if located else loss[at]
            keys[j] = -value if may else _INFINITY
            eligible += 1 if may else 0
            out[at] = matches[at]
        most = size if hard else np.int64(np.float64(matched) * np.float64(ratio))
        start = _sort(keys, order, columns)
        for k in range(columns):
            keys[k] = _ZERO
        for k in range(min(most, eligible)):
            keys[order[start + k]] = _INFINITY
        for j in range(columns):
            at, chosen = first + j, keys[j] > _ZERO
            if chosen and matches[at] < 0:
                negatives[found] = np.int32(j)
                found += 1
            if hard and not chosen:
                out[at] = -1
        offsets[image + 1] = found
    return 0


@lowering("mine_hard_examples", ragged=["NegIndices"])
def mine_hard_examples(
    code: Code, loss: Value, location: Value | None, matches: Value, scores: Value,
    negatives: Value | Ragged, made: Offsets, updated: Value | None, *, neg_pos_ratio: float,
    neg_dist_threshold: float, sample_size: int | None, mining_type: str,
) -> Any:  # fmt: skip
    """One sort of the losses of every image."""
    size = int(sample_size or 0)
    if not single(loss, location, scores) or neg_pos_ratio < 0 or size < 0:
        return False
    if not isinstance(negatives, Ragged):
        return False
    images, columns = loss.shape
    negatives.hold((images * columns, 1), images)
    hard = mining_type == "hard_example"
    located = hard and location is not None
    keys, order = code.scratch(columns), code.scratch(2, columns, dtype=np.int64)
    updated = updated or code.scratch(images, columns, dtype=np.int32)
    code.emit(
        _mine, images, columns, loss, int(located), location if located else loss, matches, scores,
        int(hard), float(neg_pos_ratio), float(neg_dist_threshold), size, keys, order,
        negatives.value, made, updated,
    )  # fmt: skip
    code.emit(copy_offsets, images + 1, made, negatives.offsets)


# ---- targets

_ASSIGN = """\
def assign_{kind}(
    images: Count, columns: Count, rows: Count, period: Count, width: Count, offsets: Integers,
    x: {kind}, matches: Words, missing: {number}, out: {kind}, weights: Floats,
):
    for image in range(images):
        for column in range(columns):
            at = image * columns + column
            row = matches[at] + offsets[image]
            if matches[at] < 0:
                weights[at] = zero
                for k in range(width):
                    out[at * width + k] = missing
            elif row >= rows:
                return 1
            else:
                weights[at] = one
                first = (row * period + column % period) * width
                for k in range(width):
                    out[at * width + k] = x[first + k]
    return 0
"""
_MISS = """\
def miss_{kind}(
    images: Count, columns: Count, width: Count, offsets: Integers, negatives: Words,
    missing: {number}, out: {kind}, weights: Floats,
):
    for image in range(images):
        for i in range(offsets[image], offsets[image + 1]):
            column = negatives[i] + columns if negatives[i] < 0 else negatives[i]
            if column < 0 or column >= columns:
                return 1
            at = image * columns + column
            weights[at] = one
            for k in range(width):
                out[at * width + k] = missing
    return 0
"""
_KINDS = {
    "float32": ("Floats", "Number"), "int32": ("Words", "Count"), "int64": ("Integers", "Count")
}  # fmt: skip
_assign = {
    d: compiled(f"assign_{k}", _ASSIGN.format(kind=k, number=n)) for d, (k, n) in _KINDS.items()
}
_miss = {d: compiled(f"miss_{k}", _MISS.format(kind=k, number=n)) for d, (k, n) in _KINDS.items()}
"""Values of matched rows for every prediction, and of predictions that should match nothing.

Arguments: images, predictions of each; rows, columns and numbers of values; offsets of images;
    values, matches; the value where there is no match; results, and weights.
"""


@lowering("target_assign", ragged=["NegIndices"])
def target_assign(
    code: Code, x: Value, lod: Value, matches: Value, negatives: Value | Ragged | None,
    negative_lod: Value | None, out: Value, weights: Value | None, *, mismatch_value: int,
) -> Any:  # fmt: skip
    """One copy, and one look at the negative predictions."""
    kind = out.dtype.name
    if kind not in _KINDS:
        return False
    missing = float(mismatch_value) if kind == "float32" else int(mismatch_value)
    (images, columns), (rows, period, width) = matches.shape, x.shape
    if lod.shape[0] != images + 1:
        return False
    weights = weights or code.scratch(images, columns)
    code.emit(in_bounds, images, lod, rows)
    sizes = images, columns, rows, period, width
    code.emit(_assign[kind], *sizes, lod, x, matches, missing, out, weights)
    if isinstance(negatives, Ragged):
        given, spans = negatives.value, negatives.offsets
    elif negatives is not None and negative_lod is not None:
        given, spans = negatives, negative_lod
        code.emit(in_bounds, images, spans, given.size)
    else:
        return
    code.emit(_miss[kind], images, columns, width, spans, given, missing, out, weights)
