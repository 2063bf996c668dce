"""``hash``: rows of integers as numbers below a limit."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.ir.opdef import Sample, Spec, op, require
from dpexec.ops._shapes import require_integer

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


def _rotated(x: Any, bits: int) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


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
    count = words.shape[1]
    pairs = words[:, : count // 2 * 2]
    lanes = pairs[:, 0::2].astype(np.uint64) | (pairs[:, 1::2].astype(np.uint64) << np.uint64(32))
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
            h = (h ^ _round(np.uint64(0), state)) * _P1 + _P4
    else:
        h = start + _P5
    h = h + np.uint64(4 * count)
    for at in range(4 * stripes, lanes.shape[1]):
        h = _rotated(h ^ _round(np.uint64(0), lanes[:, at]), 27) * _P1 + _P4
    if count % 2:
        h = _rotated(h ^ (words[:, -1].astype(np.uint64) * _P1), 23) * _P2 + _P3
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


def _infer(x: Spec, *, num_hash: int = 1, mod_by: int = 100000) -> Spec:
    require_integer(x, "X")
    require(x.rank == 2, f"X {x} must be a matrix")
    require(
        num_hash > 0 and mod_by > 0, f"num_hash={num_hash} and mod_by={mod_by} must be positive"
    )
    return x.replace(shape=(x.shape[0], num_hash, 1))


@op(
    "hash",
    inputs="X",
    outputs="Out",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.integers(0, 1000, (3, 2))}, {"num_hash": 4, "mod_by": 10000}),
        Sample({"X": r.integers(-9, 9, (2, 11))}, {"num_hash": 2, "mod_by": 97}),
        Sample({"X": r.integers(0, 9, (4, 9)).astype(np.int32)}, {"num_hash": 3}),
        Sample({"X": r.integers(0, 9, (2, 1)).astype(np.int32)}),
        Sample(
            {"X": np.array([[1], [3]])},
            {"num_hash": 2, "mod_by": 10000},
            expected={"Out": np.array([[[1269], [9609]], [[8465], [5822]]])},
        ),
    ],
)
def hash(xp: Any, x: Any, *, num_hash: int = 1, mod_by: int = 100000) -> Any:
    """Each row by ``num_hash`` hash functions: XXH64 of its bytes, modulo ``mod_by``.

    ``(N, D)`` gives ``(N, num_hash, 1)``. Source: Paddle op ``hash``.
    """
    words = xp.ascontiguousarray(x).view(np.uint32)
    hashes = [xxh64(xp, words, seed) % np.uint64(mod_by) for seed in range(num_hash)]
    return xp.stack(hashes, axis=1)[:, :, None].astype(x.dtype)
