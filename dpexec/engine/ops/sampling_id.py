"""``sampling_id``: a class drawn from every row of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops import _distributions
from dpexec.engine.ops._shapes import require_float

_CERTAIN = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


def _infer(x: Spec, *, min: float = 0.0, max: float = 1.0) -> Spec:
    require_float(x)
    require(x.rank == 2, f"X {x} must be [samples, classes]")
    require(min < max, f"min must be less than max, but they are {min} and {max}")
    return Spec((x.shape[0],), VarType.INT64, lod_level=x.lod_level)


@op(
    "sampling_id",
    inputs="X",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": np.full((6, 4), 0.25)}, {"seed": 5}),
        Sample({"X": np.full((3, 4), 0.25)}, {"seed": 5, "min": 0.2, "max": 0.7}),
        Sample({"X": _CERTAIN}, expected={"Out": np.array([1, 0])}),
    ],
)
def sampling_id(
    xp: Any, x: Any, *, min: float = 0.0, max: float = 1.0, seed: int = 0, rng: RandomStream
) -> Any:
    """For each row the first class at which the sum of probabilities exceeds a random number.

    The numbers are uniform in ``[min, max)``; with a ``seed`` they are those of the real Paddle.
    Source: Paddle op ``sampling_id``.
    """
    if seed:
        drawn = _distributions.uniform(seed, x.shape[0], min, max, x.dtype)
        chances = xp.asarray(drawn, dtype=x.dtype)
    else:
        chances = rng.uniform(xp, (x.shape[0],), x.dtype) * (max - min) + min
    below = xp.cumsum(x, axis=1) <= chances[:, None]
    return xp.minimum(below.sum(axis=1), x.shape[1] - 1).astype(np.int64)
