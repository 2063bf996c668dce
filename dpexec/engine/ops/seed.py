"""``seed``: a seed as a variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Sample, Spec, op


@op(
    "seed",
    inputs="",
    infer=lambda: Spec((1,), VarType.INT32),
    no_grad=True,
    samples=lambda r: [
        Sample(
            {},
            deviates={
                "Out": (
                    "draws new numbers in every run if there is no seed; dpexec draws new ones, "
                    "too, so the numbers differ"
                )
            },
        ),
        Sample({}, {"seed": 1}, expected={"Out": np.array([1])}),
        Sample({}, {"seed": 7}, expected={"Out": np.array([7])}),
    ],
)
def seed(xp: Any, *, rng: RandomStream, seed: int = 0) -> Any:
    """A seed ``(1,)`` for a ``dropout``: the attribute, or a new number in every run if that is 0.

    A new number is the same on all devices. A dropout that is recomputed in the backward pass gets
    the same seed. Source: Paddle op ``seed``.
    """
    return xp.asarray([seed or rng.integer()], dtype=np.int32)
