"""``unique``, ``unique_with_counts`` and ``shard_index``: numbers as keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._rows import check_rows
from dpexec.engine.ops._shapes import require_integer


def _infer_unique(x: Spec, *, dtype: int) -> tuple[Spec, Spec]:
    require(x.rank == 1, f"X {x} must be a vector")
    index = Spec(x.shape, as_var_type(dtype))
    require_integer(index, "Index")
    return x.replace(shape=(-1,), lod_level=0), index


def _first_seen(xp: Any, x: Any) -> tuple[Any, Any, Any]:
    """Values in the order of their first occurrence, each element's position there, and counts."""
    values, first, inverse, counts = xp.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    order = xp.argsort(first)
    rank = xp.empty_like(order)
    rank[order] = xp.arange(len(order))
    return values[order], rank[inverse.reshape(-1)], counts[order]


def _unique_samples(r: SampleRng) -> list[Sample]:
    return [
        Sample({"X": np.array([5, 3, 5, 1, 3])}, {"dtype": VarType.INT32}),
        Sample({"X": np.array([0.5, -1.0, 0.5])}, {"dtype": VarType.INT64}),
        Sample({"X": r.integers(0, 9, (20,))}, {"dtype": VarType.INT64}),
    ]


@op(
    "unique",
    inputs="X",
    outputs="Out Index",
    infer=_infer_unique,
    no_grad=True,
    samples=_unique_samples,
)
def unique(xp: Any, x: Any, *, dtype: int) -> tuple[Any, Any]:
    """Each value once, in the order of first occurrence, and each element's position there.

    ``out[index]`` is ``x``. Source: Paddle op ``unique``.
    """
    values, index, _ = _first_seen(xp, x)
    return values, index.astype(to_numpy(dtype))


def _infer_counts(x: Spec, *, dtype: int) -> tuple[Spec, Spec, Spec]:
    values, index = _infer_unique(x, dtype=dtype)
    return values, index, index.replace(shape=(-1,))


@op(
    "unique_with_counts",
    inputs="X",
    outputs="Out Index Count",
    infer=_infer_counts,
    no_grad=True,
    samples=_unique_samples,
)
def unique_with_counts(xp: Any, x: Any, *, dtype: int) -> tuple[Any, Any, Any]:
    """As ``unique``, and how often each value occurs. Source: Paddle op ``unique_with_counts``."""
    values, index, counts = _first_seen(xp, x)
    return values, index.astype(to_numpy(dtype)), counts.astype(to_numpy(dtype))


def _infer_shard(x: Spec, *, index_num: int, nshards: int, shard_id: int) -> Spec:
    require_integer(x, "X")
    require(x.rank >= 2 and x.shape[-1] in (1, -1), f"the last dimension of X {x} must be 1")
    require(index_num > 0, f"index_num is {index_num}, but must be positive")
    require(
        0 <= shard_id < nshards,
        f"shard_id is {shard_id}, but must be one of the {nshards} shards",
    )
    return x


@op(
    "shard_index",
    inputs="X",
    infer=_infer_shard,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {"X": np.array([[1], [6], [12], [19]])},
            {"index_num": 20, "nshards": 2, "shard_id": 0},
            expected={"Out": np.array([[1], [6], [-1], [-1]])},
        ),
        Sample(
            {"X": r.integers(0, 20, (3, 2, 1))},
            {"index_num": 20, "nshards": 3, "shard_id": 2, "ignore_value": -7},
        ),
        Sample(
            {"X": np.array([[4], [2]], dtype=np.int32)},
            {"index_num": 5, "nshards": 2, "shard_id": 1},
        ),
    ],
)
def shard_index(
    xp: Any,
    x: Any,
    *,
    index_num: int,
    nshards: int,
    shard_id: int,
    ignore_value: int = -1,
) -> Any:
    """Ids of one shard counted from its start; ``ignore_value`` for those of other shards.

    A shard holds ``ceil(index_num / nshards)`` consecutive ids. Source: Paddle op
    ``shard_index``.

    Raises:
        ValueError: an id is negative or not below ``index_num``.
    """
    check_rows(xp, x, index_num, "X")
    size = -(-index_num // nshards)
    return xp.where(x // size == shard_id, x % size, x.dtype.type(ignore_value))
