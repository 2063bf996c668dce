"""``shuffle_batch``: rows in a new random order at every run."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._sequences import on_host

_FACTOR, _MODULUS = 16807, 2**31 - 1
"""The constants of ``std::default_random_engine``."""


def _infer(x: Spec, seed: Spec) -> tuple[Spec, Spec, Spec]:
    require(x.rank > 0, f"X {x} must have rows")
    require(seed.dtype == VarType.INT64 and seed.size in (1, -1), f"Seed {seed} must be one int64")
    rows = -1 if min(x.shape[:-1], default=1) < 0 else int(np.prod(x.shape[:-1]))
    return x, Spec((rows,), VarType.INT64), seed.replace(shape=(1,))


def _samples(r: SampleRng) -> list[Sample]:
    inputs = [r.normal((5, 2)), r.normal((2, 3, 2)), r.normal((4, 1))]
    return [
        Sample({"X": x, "Seed": np.array([seed])}, grad=("X",))
        for x, seed in zip(inputs, (7, 0, 123456), strict=True)
    ]


def _shuffled(seed: int, count: int) -> tuple[list[int], int]:
    """``std::shuffle`` of the numbers below ``count``, and the engine's next number."""
    state, order = seed % _MODULUS or 1, list(range(count))
    for last in range(1, count):
        share = (_MODULUS - 2) // (last + 1)
        place = last + 1
        while place > last:
            state = state * _FACTOR % _MODULUS
            place = (state - 1) // share
        order[last], order[place] = order[place], order[last]
    return order, state * _FACTOR % _MODULUS


@op(
    "shuffle_batch",
    inputs="X Seed",
    outputs="Out ShuffleIdx SeedOut",
    infer=_infer,
    attrs={"startup_seed": 0},
    samples=_samples,
    grad_lod="flow",
)
def shuffle_batch(xp: Any, x: Any, seed: Any) -> tuple[Any, Any, Any]:
    """The rows (of all dimensions but the last) in another order, their positions, the next seed.

    The seed advances from run to run, beginning with ``startup_seed``. The order is that of the
    real Paddle. Source: Paddle op ``shuffle_batch``.
    """
    rows = x.reshape(-1, x.shape[-1])
    numbers, following = _shuffled(int(on_host(seed)[0]), len(rows))
    order, out = xp.asarray(np.array(numbers, np.int64)), xp.empty_like(rows)
    out[order] = rows
    return out.reshape(x.shape), order, xp.asarray(np.array([following]))


@shuffle_batch.grad("ShuffleIdx", "Out@GRAD", outputs="X@GRAD", infer=lambda _, d_out: d_out)
def shuffle_batch_grad(xp: Any, order: Any, d_out: Any) -> Any:
    """The gradient with the rows moved back."""
    return d_out.reshape(-1, d_out.shape[-1])[order].reshape(d_out.shape)
