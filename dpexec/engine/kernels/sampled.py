"""Noise-contrastive estimation: sampled classes, their cost, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.dropout import signed, word
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Constant, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.math import inner_product, log, log1p, sigmoid
from dpexec.engine.ops._samplers import CUSTOM, LOG_UNIFORM

_ZERO, _ONE = np.float32(0), np.float32(1)
_UNLIKELY = np.float32(-60)  # logits at which a probability may be 0
_SCALE = np.float32(2.0**-64)
_WORDS = (1 << 64) - 1

# The first arguments of all kernels: rows, columns of labels, columns of noise, classes, and
# whether small class numbers are drawn more often. The docstrings list the further ones.


@inline
def _drawn_of(classes: int, falling: int) -> Any:
    """The number of classes from which noise is drawn: with falling odds, the last never is."""
    return classes - 1 if falling else classes


@inline
def _noise(noises: int, classes: int, falling: int, chosen: int) -> Any:
    """The expected number of times that a class is drawn as noise."""
    if falling:
        limit = _drawn_of(classes, falling)
        odds = np.log((chosen + 2.0) / (chosen + 1.0)) / np.log(limit + 1.0)
        return np.float32(odds) * np.float32(noises)
    return np.float32(1.0 / classes) * np.float32(noises)


@kernel
def _draw(
    rows: Count, true: Count, noises: Count, classes: Count, falling: Count,
    label: Integers, out: Integers, key: Count, first_sample: Count, samples: Count, share: Count,
) -> int:  # fmt: skip
    """Classes of the labels, then drawn ones. Further arguments: labels, classes, the stream."""
    limit, state = _drawn_of(classes, falling), np.uint64(key)
    size = rows * noises
    first = 0 if size % samples else first_sample * (size // samples)
    for i in range(rows):
        at = i * (true + noises)
        for j in range(true):
            out[at + j] = label[i * true + j]
        for j in range(noises):
            drawn = word(np.uint64(first + i * noises + j), state)
            if falling:
                power = np.float64(np.float32(drawn) * _SCALE) * np.log(limit + 1.0)
                out[at + true + j] = (np.int64(np.exp(power)) - 1) % limit
            else:
                out[at + true + j] = min(np.int64(drawn // np.uint64(share)), limit - 1)
    return 0


@kernel
def _choose(
    rows: Count, true: Count, noises: Count, classes: Count, falling: Count, label: Integers,
    out: Integers, given: Integers,
) -> int:  # fmt: skip
    """Classes of the labels, then given ones. Further arguments: labels, classes, given classes."""
    for i in range(rows):
        at = i * (true + noises)
        for j in range(true):
            out[at + j] = label[i * true + j]
        for j in range(noises):
            out[at + true + j] = given[j]
    return 0


@kernel
def _cost(
    rows: Count, true: Count, noises: Count, classes: Count, falling: Count,
    width: Count, x: Floats, weight: Floats, biased: Count, bias: Floats, weighted: Count,
    importance: Floats, chosen: Integers, share: Floats, cost: Floats,
) -> int:  # fmt: skip
    """The cost of every row.

    Further arguments: width, x, weight, whether there is a bias, the bias, whether samples have
    weights, these weights, classes, probabilities, costs.
    """
    columns = true + noises
    for i in range(rows * columns):
        if chosen[i] < 0 or chosen[i] >= classes:
            return 1
    for i in range(rows):
        total = _ZERO
        for j in range(columns):
            at = i * columns + j
            z = inner_product(x, i * width, weight, chosen[at] * width, width)
            if biased:
                z += bias[chosen[at]]
            o, b = sigmoid(z), _noise(noises, classes, falling, chosen[at])
            if j < true and z < _UNLIKELY:
                total += log(b) - z
            else:
                ratio = b / o if j < true else o / b
                total += log1p(ratio) if ratio < _ONE else log(ratio + _ONE)
            share[at] = o
        cost[i] = total * importance[i] if weighted else total
    return 0


@kernel
def _cost_grad(
    rows: Count, true: Count, noises: Count, classes: Count, falling: Count,
    width: Count, x: Floats, weight: Floats, weighted: Count, importance: Floats, chosen: Integers,
    share: Floats, d_cost: Floats, for_x: Count, dx: Floats, for_weight: Count, d_weight: Floats,
    for_bias: Count, d_bias: Floats,
) -> int:  # fmt: skip
    """The gradients: sums over the classes of each row, in their order.

    Further arguments: width, x, weight, whether samples have weights, these weights, classes,
    probabilities, the gradient of the costs; for x, weight and bias, whether a gradient is wanted,
    and the gradient.
    """
    columns = true + noises
    if for_x:
        for i in range(rows * width):
            dx[i] = _ZERO
    if for_weight:
        for i in range(classes * width):
            d_weight[i] = _ZERO
    if for_bias:
        for i in range(classes):
            d_bias[i] = _ZERO
    for i in range(rows):
        factor = d_cost[i] * importance[i] if weighted else d_cost[i]
        for j in range(columns):
            row = chosen[i * columns + j]
            o, b = share[i * columns + j], _noise(noises, classes, falling, row)
            d = (-b if j < true else o) * (_ONE - o) / (o + b) * factor
            if for_x:
                for k in range(width):
                    dx[i * width + k] += d * weight[row * width + k]
            if for_weight:
                for k in range(width):
                    d_weight[row * width + k] += d * x[i * width + k]
            if for_bias:
                d_bias[row] += d
    return 0


def _sizes(label: Value, noises: int, classes: int, sampler: int) -> tuple[Any, ...]:
    return *label.shape, noises, classes, sampler == LOG_UNIFORM


def _maybe(code: Code, value: Value | None) -> tuple[Any, Any]:
    """Arguments for an optional value: whether it is there, and the value."""
    return value is not None, code.scratch(1) if value is None else value


@lowering("nce")
def nce(
    code: Code, x: Value, label: Value, weight: Value, bias: Value | None,
    importance: Value | None, *others: Value | None, num_total_classes: int,
    num_neg_samples: int, sampler: int, seed: int, custom_neg_classes: Sequence[int],
    rng: Callable[[Any], Any],
) -> Any:  # fmt: skip
    """One pass for the classes, one for the costs."""
    cost, share, chosen = others[-3:]
    drawn = not custom_neg_classes
    if sampler == CUSTOM or (drawn and seed) or not single(x, weight, bias, importance):
        return False
    assert cost is not None
    sizes = _sizes(label, num_neg_samples, num_total_classes, sampler)
    columns = label.shape[1] + num_neg_samples
    share = share or code.scratch(x.shape[0], columns)
    chosen = chosen or code.scratch(x.shape[0], columns, dtype=np.int64)
    if drawn:
        code.emit(
            _draw, *sizes, label, chosen, lambda shard: signed(rng(shard).state),
            lambda shard: rng(shard).first_sample, lambda shard: rng(shard).samples,
            _WORDS // num_total_classes,
        )  # fmt: skip
    else:
        code.emit(_choose, *sizes, label, chosen, Constant(np.array(custom_neg_classes, np.int64)))
    code.emit(
        _cost, *sizes, x.shape[1], x, weight, *_maybe(code, bias), *_maybe(code, importance),
        chosen, share, cost,
    )  # fmt: skip


@lowering("nce_grad")
def nce_grad(
    code: Code, x: Value, label: Value, weight: Value, bias: Value | None, share: Value,
    chosen: Value, importance: Value | None, *others: Value | None, num_total_classes: int,
    num_neg_samples: int, sampler: int,
) -> Any:  # fmt: skip
    """One pass over the classes of all rows."""
    d_cost, dx, d_weight, d_bias = others[-4:]
    if sampler == CUSTOM or not single(x, weight, importance, d_cost):
        return False
    code.emit(
        _cost_grad, *_sizes(label, num_neg_samples, num_total_classes, sampler), x.shape[1], x,
        weight, *_maybe(code, importance), chosen, share, d_cost, *_maybe(code, dx),
        *_maybe(code, d_weight), *_maybe(code, d_bias),
    )  # fmt: skip
