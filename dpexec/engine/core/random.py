"""Random numbers: streams that split exactly over replicas, and Paddle's own generator.

Operators that draw at every step (dropout) use :class:`RandomStream`: the number at a position
is a hash of (seed, operator, run, position), so the masks of N devices together are the mask of
one device on the same batch. Initialisers with a seed use :func:`minstd`, the generator of the
real Paddle, and so start from its very numbers; ``pyramid_hash`` draws by :func:`rand_r`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["RandomStream", "minstd", "rand_r"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def _mix(value: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood, 2014) on a Python int."""
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


class RandomStream:
    """Random numbers addressed by position.

    Args:
        seed: chosen by the user, or drawn afresh for a run without one.
        key: tells operators apart, the same in every process.
        run: number of the step.
        start: share of the batch before this device's shard, as (first sample, samples here).
    """

    def __init__(self, seed: int, key: int, run: int, start: tuple[int, int] = (0, 1)) -> None:
        self.state = _mix((_mix((seed * _GOLDEN + key) & _MASK) + run * _GOLDEN) & _MASK)
        self.seed, self.key, self.run = seed, key, run
        self.first_sample, self.samples = start

    def with_seed(self, seed: int) -> RandomStream:
        """The stream of the same operator, run and shard with another seed."""
        return RandomStream(seed, self.key, self.run, (self.first_sample, self.samples))

    def of_all_devices(self) -> RandomStream:
        """The stream that gives every device the same numbers: for what is not split."""
        return RandomStream(self.seed, self.key, self.run)

    def first(self, size: int) -> int:
        """The position of the first of this device's ``size`` numbers."""
        per_sample, rest = divmod(size, self.samples)
        return 0 if rest else self.first_sample * per_sample

    def origin(self, size: int) -> tuple[int, int]:
        """The words that ``size`` numbers of this device follow from: state, first position."""
        return self.state, self.first(size)

    def origin_on(self, xp: Any, size: int) -> Any:
        """The same on the device of ``xp``, uint64 ``(2,)``."""
        return xp.asarray(np.array(self.origin(size), np.uint64))

    def bits(self, xp: Any, shape: tuple[int, ...]) -> Any:
        """Independent 64-bit words, an uint64 array of ``shape``.

        Where the first dimension (or the element count) divides by the samples of the shard, the
        positions continue those of the shards before it.
        """
        size = math.prod(shape)
        first = self.first(size)
        words = xp.arange(first, first + size, dtype=np.uint64)
        words *= np.uint64(_GOLDEN)
        words += np.uint64(self.state)
        for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
            words ^= words >> np.uint64(shift)
            words *= np.uint64(factor)
        words ^= words >> np.uint64(31)
        return words.reshape(shape)

    def uniform(self, xp: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        """Uniform numbers in [0, 1) with 24 (float32) or 53 (float64) random bits."""
        digits = 53 if np.dtype(dtype) == np.float64 else 24
        words = self.bits(xp, shape) >> np.uint64(64 - digits)
        return words.astype(dtype) * np.dtype(dtype).type(2.0**-digits)

    def integer(self) -> int:
        """One positive 31-bit integer: a seed for a sequential generator."""
        return (_mix(self.state ^ _GOLDEN) & 0x7FFFFFFE) + 1


_MINSTD_A = 48271
_MINSTD_M = 2**31 - 1


def minstd(seed: int, count: int) -> np.ndarray[Any, Any]:
    """The first ``count`` outputs of C++'s ``std::minstd_rand`` for a seed, as uint64.

    Output n is ``48271**n * seed mod (2**31 - 1)``; computed by doubling, so without a loop over
    the numbers.
    """
    state = seed % _MINSTD_M or 1
    out = np.empty(max(count, 1), dtype=np.uint64)
    out[0] = state * _MINSTD_A % _MINSTD_M
    done = 1
    while done < count:
        jump = np.uint64(pow(_MINSTD_A, done, _MINSTD_M))
        more = min(done, count - done)
        out[done : done + more] = out[:more] * jump % np.uint64(_MINSTD_M)
        done += more
    return out[:count]


_RAND_A, _RAND_C = np.uint32(1103515245), np.uint32(12345)


def rand_r(seed: int, count: int) -> np.ndarray[Any, Any]:
    """The first ``count`` numbers of the C library's ``rand_r`` for a seed, int64 below 2**31.

    Each is made of three states of the generator ``s * 1103515245 + 12345 mod 2**32``.
    Source: glibc; IEEE Std 1003.1.
    """
    powers = np.cumprod(np.full(3 * count, _RAND_A), dtype=np.uint32)
    sums = np.cumsum(np.concatenate([np.ones(1, np.uint32), powers]), dtype=np.uint32)[:-1]
    states = powers * np.uint32(seed & 0xFFFFFFFF) + sums * _RAND_C
    high = (states >> np.uint32(16)).astype(np.int64).reshape(-1, 3)
    return ((high[:, 0] % 2048) << 20) ^ ((high[:, 1] % 1024) << 10) ^ (high[:, 2] % 1024)
