"""Dropout, with the same random numbers as :class:`dpexec.engine.core.random.RandomStream`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.elementwise import SCALE
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Number, Octets, kernel

__all__ = ["signed", "word"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_BITS = 24
_ZERO = np.float32(0)


@inline
def word(position: Any, state: Any) -> Any:
    """The random number of a stream at a position."""
    word = position * _GOLDEN + state
    word = (word ^ (word >> _S30)) * _MIX_1
    word = (word ^ (word >> _S27)) * _MIX_2
    return word ^ (word >> _S31)


@kernel
def _dropout(
    n: Count, x: Floats, out: Floats, mask: Octets, key: Count, first_sample: Count, samples: Count,
    least: Count, factor: Number,
) -> int:  # fmt: skip
    state = np.uint64(key)
    lowest = np.uint64(least)
    first = np.uint64(0 if n % samples else first_sample * (n // samples))
    for i in range(n):
        mask[i] = 1 if word(first + np.uint64(i), state) >= lowest else 0
    for i in range(n):
        out[i] = x[i] * factor if mask[i] else _ZERO
    return 0


@kernel
def _dropout_grad(n: Count, mask: Octets, dy: Floats, dx: Floats, factor: Number) -> int:
    for i in range(n):
        dx[i] = dy[i] * factor if mask[i] else _ZERO
    return 0


def signed(word: int) -> int:
    """The same 64 bits as a signed number."""
    return word - (1 << 64) if word >> 63 else word


def _factor(probability: float, implementation: str) -> float:
    return 1 / (1 - probability) if implementation == "upscale_in_train" else 1.0


@lowering("dropout")
def dropout(
    code: Code, x: Value, seed: Value | None, out: Value, mask: Value | None,
    *, rng: Callable[[Any], Any], dropout_prob: float, is_test: bool, dropout_implementation: str,
) -> Any:  # fmt: skip
    """One pass for the numbers, one for the results."""
    if seed is not None or not single(x) or dropout_prob >= 1:
        return False
    if is_test:
        upscaled = dropout_implementation == "upscale_in_train"
        SCALE.emit(code, out, x, factors=(1.0 if upscaled else 1 - dropout_prob, 0.0))
        return None
    mask = mask or code.scratch(x.size, dtype=np.uint8)
    lowest = math.ceil(dropout_prob * 2**_BITS) << (64 - _BITS)
    code.emit(
        _dropout, x.size, x, out, mask, lambda shard: signed(rng(shard).state),
        lambda shard: rng(shard).first_sample, lambda shard: rng(shard).samples, signed(lowest),
        _factor(dropout_prob, dropout_implementation),
    )  # fmt: skip


@lowering("dropout_grad")
def dropout_grad(
    code: Code, mask: Value, d_out: Value, dx: Value, *, dropout_prob: float,
    dropout_implementation: str,
) -> Any:  # fmt: skip
    """One pass."""
    if not single(d_out) or dropout_prob >= 1:
        return False
    factor = _factor(dropout_prob, dropout_implementation)
    code.emit(_dropout_grad, d_out.size, mask, d_out, dx, factor)
