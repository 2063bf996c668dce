"""Connectionist temporal classification: the loss of tags over all alignments, and its gradient.

:mod:`dpexec.engine.ops._ctc` explains the states, and why logarithms have double precision. Forward
variables of all steps would need room for the longest sequence with the most tags. So the forward
variables of some steps are stored, and the backward pass computes the remaining ones from these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.sizes import at_most
from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.doubles import exp64, log64
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Ragged, Value, lowering
from dpexec.engine.kernels.machine import Count, Doubles, Floats, Integers, Words, kernel
from dpexec.engine.kernels.math import lanes, largest
from dpexec.engine.kernels.sequences import copy_offsets, in_bounds
from dpexec.engine.ops._ctc import NEVER

__all__ = ["alignments"]

_ZERO = np.float32(0)


@lanes
def _sum(x: Any, n: int) -> Any:
    """The sum of ``n`` numbers."""
    total = 0.0
    for i in range(n):
        total += x[i]
    return total


@inline
def _joined(a: Any, b: Any, c: Any) -> Any:
    """The logarithm of the sum of three exponentials."""
    top = max(max(a, b), c)
    return log64(exp64(a - top) + exp64(b - top) + exp64(c - top)) + top


@inline
def _scores(x: Any, at: int, top: Any, total: Any, classes: Any, states: int, here: Any) -> None:
    """The log-probabilities of the classes of all states at a step."""
    for s in range(states):
        here[s] = np.float64(x[at + classes[s]] - top) - total


@inline
def _advance(x: Any, before: int, now: int, skips: Any, here: Any, states: int) -> None:
    """Forward variables of a step from those of the step before; two numbers precede each row."""
    for s in range(states):
        found = _joined(x[before + 2 + s], x[before + 1 + s], x[before + s] + skips[s])
        x[now + 2 + s] = found + here[s]


@inline
def _states(tags: Any, first: int, states: int, blank: int, classes: Any, skips: Any) -> None:
    """The classes of states, and what it costs to come from the state two before."""
    for s in range(states + 2):
        classes[s] = tags[first + s // 2] if s % 2 and s < states else blank
    for s in range(states + 2):
        differs = 1 < s < states and classes[s] != blank and classes[s] != classes[s - 2]
        skips[s] = 0.0 if differs else NEVER


@inline
def _return(back: Any, wide: Any, skips: Any, here: Any, states: int, ends: Any) -> None:
    """Backward variables of a step from those of the step behind it; two numbers follow each row.

    At the end, only the last two states may be reached.
    """
    for s in range(states + 2):
        wide[s] = back[s] + here[s] if s < states else NEVER
    for s in range(states):
        found = _joined(wide[s], wide[s + 1], wide[s + 2] + skips[s + 2])
        back[s] = (0.0 if s >= states - 2 else NEVER) if ends else found


@inline
def _probabilities(x: Any, at: int, top: Any, total: Any, classes: int, out: Any) -> None:
    for k in range(classes):
        out[k] = exp64(np.float64(x[at + k] - top) - total)


@inline
def _copy(x: Any, at: int, out: Any, place: int, n: int) -> None:
    for i in range(n):
        out[place + i] = x[at + i]


@inline
def _begin(x: Any, room: int, rows: int, here: Any, states: int) -> None:
    """Forward variables of the first step, blank or the first tag, before rows of which none is."""
    for row in range(rows):
        for s in range(states + 2):
            x[row * room + s] = NEVER
    for s in range(min(states, 2)):
        x[2 + s] = here[s]


@kernel
def _spans(
    sequences: Count, apart: Count, offsets: Integers, most: Count, firsts: Integers,
    lengths: Integers,
) -> int:  # fmt: skip
    """First rows and lengths of sequences; refuses lengths out of range.

    Arguments: sequences; how far apart the beginnings of padded ones are, 0 if there are offsets;
        offsets, or lengths; the greatest length; results.
    """
    for sequence in range(sequences):
        if apart:
            firsts[sequence], lengths[sequence] = sequence * apart, offsets[sequence]
        else:
            firsts[sequence] = offsets[sequence]
            lengths[sequence] = offsets[sequence + 1] - offsets[sequence]
        if lengths[sequence] < 0 or lengths[sequence] > most:
            return 1
    return 0


@kernel
def _are_tags(
    sequences: Count, firsts: Integers, lengths: Integers, tags: Words, classes: Count
) -> int:
    """Refuse tags out of range. Arguments: sequences, first tags, lengths, tags, classes."""
    for sequence in range(sequences):
        for i in range(firsts[sequence], firsts[sequence] + lengths[sequence]):
            if tags[i] < 0 or tags[i] >= classes:
                return 1
    return 0


@kernel
def _normalize(
    rows: Count, classes: Count, x: Floats, tops: Floats, totals: Doubles, powers: Doubles
) -> int:
    """The largest score of each row, and the logarithm of the sum of exponentials.

    Arguments: rows, classes, scores, results, memory for a row.
    """
    for row in range(rows):
        at = row * classes
        top = largest(x, at, classes)
        for k in range(classes):
            powers[k] = exp64(np.float64(x[at + k] - top))
        tops[row], totals[row] = top, log64(_sum(powers, classes))
    return 0


@kernel
def alignments(
    sequences: Count, classes: Count, blank: Count, step: Count, firsts: Integers,
    lengths: Integers, first_tags: Integers, counts: Integers, x: Floats, tags: Words,
    tops: Floats, totals: Doubles, powers: Doubles, room: Count, kept: Doubles, part: Doubles,
    back: Doubles, wide: Doubles, skips: Doubles, here: Doubles, states: Integers, loss: Floats,
    wanted: Count, across: Count, grad: Floats,
) -> int:  # fmt: skip
    """The losses of sequences, and the gradients of their scores.

    Arguments: sequences, classes, the class of blanks, rows between two steps of a sequence; first
        rows and lengths of sequences, first tags and their numbers; scores, tags; largest scores
        and logarithms of sums of rows; memory: for a number for each class, for some rows of
        numbers for each state (they have ``room`` numbers), and for eight rows; losses; whether
        gradients are wanted, the width of a step if they are padded, else 0, and gradients.
    """
    for sequence in range(sequences):
        first, steps, n = firsts[sequence], lengths[sequence], 2 * counts[sequence] + 1
        loss[sequence] = _ZERO
        _states(tags, first_tags[sequence], n, blank, states, skips)
        stride = np.int64(np.sqrt(np.float64(steps))) + 1
        for t in range(steps):
            row, at = first + t * step, t % stride * room
            _scores(x, row * classes, tops[row], totals[row], states, n, here)
            if t == 0:
                _begin(part, room, stride, here, n)
            else:
                _advance(part, (t - 1) % stride * room, at, skips, here, n)
            if t % stride == 0:
                _copy(part, at, kept, t // stride * room, n + 2)
        at = max(steps - 1, 0) % stride * room + 2
        total = _joined(part[at + n - 1], part[at + n - 2], NEVER) if n > 1 else part[at]
        if not steps or total <= NEVER / 2:
            continue
        loss[sequence] = np.float32(-total)
        for t in range(steps - 1 if wanted else -1, -1, -1):
            row = first + t * step
            if t < steps - 1 and (t + 1) % stride == 0:  # forward variables of the steps before
                begin = t // stride
                _copy(kept, begin * room, part, 0, n + 2)
                for i in range(1, stride):
                    r = first + (begin * stride + i) * step
                    _scores(x, r * classes, tops[r], totals[r], states, n, here)
                    _advance(part, (i - 1) * room, i * room, skips, here, n)
            r = row + step if t < steps - 1 else row
            _scores(x, r * classes, tops[r], totals[r], states, n, here)
            _return(back, wide, skips, here, n, t == steps - 1)
            for s in range(n):
                here[s] = exp64(part[t % stride * room + 2 + s] + back[s] - total)
            place = (t * across + sequence if across else row) * classes
            _probabilities(x, row * classes, tops[row], totals[row], classes, powers)
            for s in range(n):
                powers[states[s]] -= here[s]
            for k in range(classes):
                grad[place + k] = np.float32(powers[k])
    return 0


@kernel
def _times(
    sequences: Count, classes: Count, step: Count, firsts: Integers, lengths: Integers,
    across: Count, grad: Floats, d_loss: Floats, by_times: Count, dx: Floats,
) -> int:  # fmt: skip
    """Gradients times those of losses.

    Arguments: sequences, classes, rows between two steps; first rows, lengths; the width of a step
        if gradients are padded, else 0, gradients; those of losses; whether they are divided by
        the length; result.
    """
    for sequence in range(sequences):
        factor = d_loss[sequence]
        if by_times:
            factor /= np.float32(max(lengths[sequence], 1))
        for t in range(lengths[sequence]):
            row = firsts[sequence] + t * step
            place = (t * across + sequence if across else row) * classes
            for k in range(classes):
                dx[row * classes + k] = grad[place + k] * factor
    return 0


@kernel
def _clear(n: Count, out: Floats) -> int:
    """Zeros. Arguments: how many, result."""
    for i in range(n):
        out[i] = _ZERO
    return 0


def _spread(
    code: Code, x: Value, lod: Value | None, lengths: Value | None, wide: bool
) -> tuple[Any, Any, Value, Value]:
    """Where sequences are: their number, rows between two steps, first rows and lengths.

    Args:
        code: takes the calls.
        x: the rows; padded if there are lengths.
        lod: offsets, if there are no lengths.
        lengths: the lengths of padded sequences.
        wide: whether padded sequences lie one behind the other, ``(sequences, longest)``, and not
            ``(longest, sequences, classes)``.
    """
    given: Any = lod if lengths is None else lengths
    if lengths is None:
        sequences, most, apart, step = given.shape[0] - 1, x.shape[0], 0, 1
        code.emit(in_bounds, sequences, given, x.shape[0])
    else:
        most, sequences = (x.shape[1], x.shape[0]) if wide else x.shape[:2]
        apart, step = most if wide else 1, sequences
    firsts, found = (code.scratch(sequences, dtype=np.int64) for _ in range(2))
    code.emit(_spans, sequences, apart, given, most, firsts, found)
    return sequences, step, firsts, found


def _fits(
    x: Value, lod: Value | None, label: Value, label_lod: Value | None, *lengths: Any
) -> bool:
    """Whether code can compute the loss of these inputs."""
    if not single(x) or label.dtype != "int32":
        return False
    if lengths[0] is not None:
        return all(given is not None and given.dtype == "int64" for given in lengths)
    return lod is not None and label_lod is not None and lod.shape[0] == label_lod.shape[0]


@lowering("warpctc", ragged=["WarpCTCGrad"])
def warpctc(
    code: Code, x: Value, lod: Value | None, label: Value, label_lod: Value | None,
    x_length: Value | None, label_length: Value | None, grad: Value | Ragged | None, loss: Value,
    *, blank: int,
) -> Any:  # fmt: skip
    """One pass forward over the steps of every sequence, and one back."""
    if not _fits(x, lod, label, label_lod, x_length, label_length):
        return False
    found = _spread(code, x, lod, x_length, False)
    tags = _spread(code, label, label_lod, label_length, True)
    (sequences, step, *spans), classes = found, x.shape[-1]
    rows = x.size // classes
    steps, most = (rows, label.shape[0]) if lod is not None else (x.shape[0], label.shape[1])
    code.emit(_are_tags, sequences, *tags[2:], label, classes)
    tops, totals = code.scratch(rows), code.scratch(rows, dtype=np.float64)
    powers = code.scratch(classes, dtype=np.float64)
    code.emit(_normalize, rows, classes, x, tops, totals, powers)
    room, strides = 2 * most + 3, math.isqrt(at_most(steps)) + 1
    kept, part = (code.scratch(strides, room, dtype=np.float64) for _ in range(2))
    back, wide, skips, here = (code.scratch(room, dtype=np.float64) for _ in range(4))
    made = _room(code, grad, lod, (rows, classes))
    code.emit(
        alignments, sequences, classes, blank, step, *spans, *tags[2:], x, label, tops, totals,
        powers, room, kept, part, back, wide, skips, here, code.scratch(room, dtype=np.int64), loss,
        int(made is not None), 0 if isinstance(grad, Ragged) else sequences, made or tops,
    )  # fmt: skip


def _room(code: Code, grad: Any, lod: Value | None, shape: Sequence[int]) -> Value | None:
    """Zeros in which gradients are computed; None if nobody wants them.

    Args:
        code: takes the call.
        grad: the gradients; they get memory if their size is not known.
        lod: offsets.
        shape: rows and classes.
    """
    if isinstance(grad, Ragged):
        assert lod is not None
        grad.hold((shape[0], shape[1]), lod.shape[0] - 1, padded=True)
        code.emit(copy_offsets, lod.shape[0], lod, grad.offsets)
        grad = grad.value
    if grad is not None:
        code.emit(_clear, grad.size, grad)
    found: Value | None = grad
    return found


@lowering("warpctc_grad", ragged=["WarpCTCGrad"])
def warpctc_grad(
    code: Code, x: Value, lod: Value | None, x_length: Value | None, grad: Value | Ragged,
    d_loss: Value, dx: Value, *, norm_by_times: bool,
) -> Any:  # fmt: skip
    """One pass."""
    if not single(x, d_loss) or (x_length is not None and x_length.dtype != "int64"):
        return False
    if x_length is None and lod is None:
        return False
    found = _spread(code, x, lod, x_length, False)
    (sequences, step, *spans), classes = found, x.shape[-1]
    code.emit(_clear, x.size, dx)
    given = (0, grad.value) if isinstance(grad, Ragged) else (sequences, grad)
    code.emit(_times, sequences, classes, step, *spans, *given, d_loss, int(norm_by_times), dx)
