"""``random_crop``: a section of every sample, at a random place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.random import minstd
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import product


def _infer(x: Spec, seed: Spec, *, shape: Sequence[int]) -> tuple[Spec, Spec]:
    require(
        0 < len(shape) <= x.rank,
        f"shape {list(shape)} must tell the size of the last dimensions of X {x}",
    )
    kept = x.shape[: x.rank - len(shape)]
    require(
        all(n > 0 and (size < 0 or n <= size)
            for n, size in zip(shape, x.shape[len(kept) :], strict=True)),
        f"shape {list(shape)} must be positive and not larger than X {x}",
    )  # fmt: skip
    require(seed.dtype == VarType.INT64 and seed.size in (1, -1), f"Seed {seed} must be one int64")
    return x.replace(shape=(*kept, *shape), lod_level=0), Spec((1,), VarType.INT64)


@op(
    "random_crop",
    inputs="X Seed",
    outputs="Out SeedOut",
    infer=_infer,
    attrs={"startup_seed": 0},
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((3, 5, 6)), "Seed": np.array([7])}, {"shape": [2, 3]}),
        Sample(
            {"X": r.normal((2, 3, 6, 5)), "Seed": np.array([0])},
            {"shape": [4, 4], "startup_seed": 11},
        ),
        Sample({"X": r.normal((4, 9)), "Seed": np.array([-3])}, {"shape": [9]}),
    ],
)
def random_crop(xp: Any, x: Any, seed: Any, *, shape: Sequence[int]) -> tuple[Any, Any]:
    """A section of ``shape`` from the last dimensions of every sample, and the next seed.

    The seed advances from run to run, beginning with ``startup_seed``. The numbers are those of the
    real Paddle. Source: Paddle op ``random_crop``.
    """
    kept, inner = x.shape[: x.ndim - len(shape)], x.shape[x.ndim - len(shape) :]
    samples = product(kept)
    state = int(seed.reshape(-1)[0]) & 0xFFFFFFFFFFFFFFFF
    draws = minstd(state, samples * len(shape) + 1).astype(np.int64)
    flat = x.reshape(samples, *inner)
    out = xp.empty((samples, *shape), dtype=x.dtype)
    for sample, drawn in enumerate(draws[:-1].reshape(samples, len(shape))):
        starts = [
            min((int(draw) - 1) // ((2**31 - 3) // (size - n + 1)), size - n)
            for draw, size, n in zip(drawn, inner, shape, strict=True)
        ]
        section = (slice(a, a + n) for a, n in zip(starts, shape, strict=True))
        out[sample] = flat[(sample, *section)]
    return out.reshape(*kept, *shape), xp.asarray(draws[-1:])
