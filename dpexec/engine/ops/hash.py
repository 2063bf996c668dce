"""``hash``: hashes rows of integers to numbers below a limit."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._hashes import xxh64
from dpexec.engine.ops._shapes import require_integer


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
    """``num_hash`` hashes of each row: XXH64 of its bytes, modulo ``mod_by``.

    ``(N, D)`` gives ``(N, num_hash, 1)``. Source: Paddle op ``hash``.
    """
    words = xp.ascontiguousarray(x).view(np.uint32)
    hashes = [xxh64(xp, words, seed) % np.uint64(mod_by) for seed in range(num_hash)]
    return xp.stack(hashes, axis=1)[:, :, None].astype(x.dtype)
