"""Random classes and integers; with a seed they are those of the real Paddle.

Samplers turn 64-bit words into classes. With a seed the words come from C++'s generators, without
one from a :class:`dpexec.engine.core.random.RandomStream`.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.random import RandomStream, minstd

Array = np.ndarray[Any, Any]

UNIFORM, LOG_UNIFORM, CUSTOM = 0, 1, 2
"""The samplers of the operator ``nce`` by number."""

_STATE, _MIDDLE = 312, 156
_TWIST = 0xB5026F5AA96619E9
_UPPER, _LOWER = 0xFFFFFFFF80000000, 0x7FFFFFFF
_WORD = (1 << 64) - 1


def mersenne_twister(seed: int, count: int) -> Array:
    """The first ``count`` outputs of ``std::mt19937_64`` (Nishimura, 2000), as uint64."""
    words = [seed & _WORD]
    for i in range(1, _STATE):
        last = words[-1]
        words.append((6364136223846793005 * (last ^ (last >> 62)) + i) & _WORD)
    state = np.array(words, dtype=np.uint64)
    blocks = []
    for _ in range(-(-count // _STATE)):
        state = _next_state(state)
        blocks.append(state)
    x = np.concatenate(blocks)[:count] if blocks else state[:0]
    x = x ^ ((x >> np.uint64(29)) & np.uint64(0x5555555555555555))
    x ^= (x << np.uint64(17)) & np.uint64(0x71D67FFFEDA60000)
    x ^= (x << np.uint64(37)) & np.uint64(0xFFF7EEE000000000)
    return x ^ (x >> np.uint64(43))


def _next_state(old: Array) -> Array:
    new = np.empty_like(old)
    new[:_MIDDLE] = old[_MIDDLE:] ^ _twisted(old[:_MIDDLE], old[1 : _MIDDLE + 1])
    new[_MIDDLE:] = new[:_MIDDLE] ^ _twisted(old[_MIDDLE:], np.append(old[_MIDDLE + 1 :], new[0]))
    return new


def _twisted(first: Array, second: Array) -> Array:
    mixed = (first & np.uint64(_UPPER)) | (second & np.uint64(_LOWER))
    return (mixed >> np.uint64(1)) ^ ((mixed & np.uint64(1)) * np.uint64(_TWIST))


def random_words(sampler: Sampler, seed: int, shape: tuple[int, ...], rng: RandomStream) -> Array:
    """The random words for classes of a shape: one or two words per class.

    With a seed they come from Paddle's generator, else from this run's stream.
    """
    whole = (*shape, sampler.words)
    if not seed:
        return np.asarray(rng.bits(np, whole))
    if isinstance(sampler, Custom):
        return sampler.seeded(seed, math.prod(shape)).reshape(whole)
    return mersenne_twister(seed, math.prod(whole)).reshape(whole)


def _below(words: Array, size: int) -> Array:
    """``std::uniform_int_distribution`` over [0, size); words that C++ rejects give size - 1."""
    numbers = words // np.uint64(_WORD // size)
    return np.minimum(numbers, np.uint64(size - 1)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Uniform:
    """All classes with the same probability."""

    classes: int
    words = 1

    def draw(self, words: Array) -> Array:
        """Classes for words ``(..., 1)``."""
        return _below(words[..., 0], self.classes)

    def probability(self, classes: Array) -> Array:
        """How probable classes are, float32."""
        return np.full(classes.shape, 1 / self.classes, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Class ``k < limit`` with the probability ``log((k + 2) / (k + 1)) / log(limit + 1)``."""

    limit: int
    words = 1

    def draw(self, words: Array) -> Array:
        """Classes for words ``(..., 1)``."""
        uniform = words[..., 0].astype(np.float32) * np.float32(2.0**-64)
        values = np.exp(uniform.astype(np.float64) * math.log(self.limit + 1))
        return (values.astype(np.int64) - 1) % self.limit

    def probability(self, classes: Array) -> Array:
        """How probable classes are, float32."""
        odds = (classes + 2.0) / (classes + 1.0)
        return (np.log(odds) / math.log(self.limit + 1)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Custom:
    """Classes with given probabilities, drawn by the alias method (Walker, 1977).

    Args:
        probabilities: of every class.
        alias: the class that may stand in for each.
        threshold: the probability that a class stays as drawn.
    """

    probabilities: Array
    alias: Array
    threshold: Array
    words = 2

    def seeded(self, seed: int, count: int) -> Array:
        """Words ``(count, 2)`` from ``std::mt19937``, of which Paddle makes int and double."""
        raw = np.random.RandomState(seed & 0xFFFFFFFF).bytes(12 * count)
        first, low, high = np.frombuffer(raw, dtype="<u4").reshape(count, 3).T.astype(np.uint64)
        return np.stack([first << np.uint64(32), (high << np.uint64(32)) + low], axis=1)

    def draw(self, words: Array) -> Array:
        """Classes for words ``(..., 2)``."""
        first = _below(words[..., 0], len(self.probabilities))
        kept = words[..., 1].astype(np.float64) * 2.0**-64 <= self.threshold[first]
        return np.where(kept, first, self.alias[first]).astype(np.int64)

    def probability(self, classes: Array) -> Array:
        """How probable classes are, float32."""
        return self.probabilities[classes].astype(np.float32)


Sampler: TypeAlias = Uniform | LogUniform | Custom


def integers(seed: int, count: int, low: int, high: int) -> Array:
    """``std::uniform_int_distribution`` over [low, high) from ``std::minstd_rand``, int64."""
    size, whole = high - low, 2**31 - 2
    scaling = (whole - 1) // size if size < whole else 1
    drawn = 2 * count + 16
    while True:
        draws = minstd(seed & 0xFFFFFFFF, drawn) - np.uint64(1)
        numbers = draws[draws < size * scaling] // np.uint64(scaling)
        if len(numbers) >= count:
            return numbers[:count].astype(np.int64) + low
        drawn *= 2


def permutation(seed: int, count: int) -> Array:
    """``std::random_shuffle`` of the numbers below ``count`` after ``srand(seed)``, int64."""
    numbers = list(range(count))
    for i, draw in enumerate(_c_library_random(seed, max(count - 1, 0)), start=1):
        j = draw % (i + 1)
        numbers[i], numbers[j] = numbers[j], numbers[i]
    return np.array(numbers, dtype=np.int64)


def _c_library_random(seed: int, count: int) -> list[int]:
    """The first ``count`` results of ``rand()`` in glibc: an additive lagged Fibonacci sequence."""
    state = [seed & 0xFFFFFFFF]
    for _ in range(30):
        state.append(state[-1] * 16807 % (2**31 - 1))
    state += state[:3]
    for _ in range(310 + count):
        state.append((state[-31] + state[-3]) & 0xFFFFFFFF)
    return [word >> 1 for word in state[len(state) - count :]]
