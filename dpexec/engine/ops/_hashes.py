"""Hashes of rows of words: XXH64, XXH32 and MurmurHash3."""

from __future__ import annotations

from typing import Any

import numpy as np

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_Q1, _Q2, _Q3, _Q4, _Q5 = (
    np.uint32(prime) for prime in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
)
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def _rotated(x: Any, bits: int) -> Any:
    """Rotate the bits of every number to the left."""
    kind = x.dtype.type
    return (x << kind(bits)) | (x >> kind(8 * x.dtype.itemsize - bits))


def _pairs(words: Any) -> Any:
    """Combine pairs of 32-bit words to 64-bit words; an odd last word is left out."""
    even = words[:, : words.shape[1] // 2 * 2]
    return even[:, 0::2].astype(np.uint64) | (even[:, 1::2].astype(np.uint64) << np.uint64(32))


def _round(state: Any, lane: Any) -> Any:
    return _rotated(state + lane * _P2, 31) * _P1


def xxh64(xp: Any, words: Any, seed: int) -> Any:
    """The hash XXH64 (Collet, 2014) of every row.

    Args:
        xp: array module.
        words: rows of uint32 ``(N, words)``.
        seed: of the hash.

    Returns:
        uint64 ``(N,)``.
    """
    count, lanes = words.shape[1], _pairs(words)
    start = xp.full(len(words), seed, dtype=np.uint64)
    stripes = lanes.shape[1] // 4
    if stripes:
        states = [start + _P1 + _P2, start + _P2, start, start - _P1]
        for at in range(0, 4 * stripes, 4):
            states = [_round(state, lanes[:, at + i]) for i, state in enumerate(states)]
        h = sum(
            (_rotated(state, bits) for state, bits in zip(states, (1, 7, 12, 18), strict=True)),
            start=xp.zeros_like(start),
        )
        for state in states:
            h = (h ^ _round(xp.zeros_like(h), state)) * _P1 + _P4
    else:
        h = start + _P5
    h = h + np.uint64(4 * count)
    for at in range(4 * stripes, lanes.shape[1]):
        h = _rotated(h ^ _round(xp.zeros_like(h), lanes[:, at]), 27) * _P1 + _P4
    if count % 2:
        h = _rotated(h ^ (words[:, -1].astype(np.uint64) * _P1), 23) * _P2 + _P3
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


def xxh32(xp: Any, words: Any, seed: int) -> Any:
    """The hash XXH32 (Collet, 2012) of every row.

    Args:
        xp: array module.
        words: rows of uint32 ``(N, words)``.
        seed: of the hash.

    Returns:
        uint32 ``(N,)``.
    """
    count = words.shape[1]
    start, stripes = xp.full(len(words), seed, dtype=np.uint32), count // 4
    if stripes:
        states = [start + _Q1 + _Q2, start + _Q2, start, start - _Q1]
        for at in range(0, 4 * stripes, 4):
            states = [
                _rotated(state + words[:, at + i] * _Q2, 13) * _Q1 for i, state in enumerate(states)
            ]
        turned = (_rotated(s, bits) for s, bits in zip(states, (1, 7, 12, 18), strict=True))
        h = sum(turned, start=xp.zeros_like(start))
    else:
        h = start + _Q5
    h = h + np.uint32(4 * count)
    for at in range(4 * stripes, count):
        h = _rotated(h + words[:, at] * _Q3, 17) * _Q4
    h = (h ^ (h >> np.uint32(15))) * _Q2
    h = (h ^ (h >> np.uint32(13))) * _Q3
    return h ^ (h >> np.uint32(16))


def murmur3(xp: Any, words: Any, seed: int) -> tuple[Any, Any]:
    """The 128-bit hash MurmurHash3_x64_128 (Appleby, 2011) of every row.

    Args:
        xp: array module.
        words: rows of uint32 ``(N, words)``.
        seed: of the hash.

    Returns:
        Its halves, uint64 ``(N,)``.
    """
    count, lanes = words.shape[1], _pairs(words)
    a = xp.full(len(words), seed, dtype=np.uint64)
    b, whole = a, count // 4
    for at in range(0, 2 * whole, 2):
        a = _rotated(a ^ _mixed(lanes[:, at], _C1, 31, _C2), 27) + b
        a = a * np.uint64(5) + np.uint64(0x52DCE729)
        b = _rotated(b ^ _mixed(lanes[:, at + 1], _C2, 33, _C1), 31) + a
        b = b * np.uint64(5) + np.uint64(0x38495AB5)
    rest = words[:, 4 * whole :]
    if rest.shape[1] > 2:
        b = b ^ _mixed(rest[:, 2].astype(np.uint64), _C2, 33, _C1)
    if rest.shape[1] > 1:
        a = a ^ _mixed(_pairs(rest)[:, 0], _C1, 31, _C2)
    elif rest.shape[1]:
        a = a ^ _mixed(rest[:, 0].astype(np.uint64), _C1, 31, _C2)
    size = np.uint64(4 * count)
    a, b = a ^ size, b ^ size
    a = a + b
    b = _avalanche(b + a)
    a = _avalanche(a) + b
    return a, b + a


def _mixed(lane: Any, first: Any, bits: int, second: Any) -> Any:
    return _rotated(lane * first, bits) * second


def _avalanche(x: Any) -> Any:
    """Let every bit change all others."""
    x = (x ^ (x >> np.uint64(33))) * _F1
    x = (x ^ (x >> np.uint64(33))) * _F2
    return x ^ (x >> np.uint64(33))
