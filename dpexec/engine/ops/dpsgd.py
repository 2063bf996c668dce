"""``dpsgd``: gradient descent with differential privacy."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.random import RandomStream
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.ops._optimizers import drawn, optimizer, scalar

_SLOTS = "Param Grad LearningRate"


@optimizer(
    "dpsgd",
    _SLOTS,
    "Param",
    attrs={"seed": 0},
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0, 1.0]),
                "Grad": np.array([3.0, 4.0]),
                "LearningRate": np.array([0.5]),
            },
            {"clip": 1.0, "sigma": 0.0},
            expected={"ParamOut": np.array([0.7, 0.6])},
        ),
        drawn(r, _SLOTS, {"clip": 1.5, "batch_size": 4.0, "sigma": 0.0}),
        drawn(r, _SLOTS, {"clip": 100.0, "sigma": 0.0}),
    ],
    operand_ulps=2,
)
def dpsgd(
    xp: Any,
    param: Any,
    grad: Any,
    rate: Any,
    *,
    rng: RandomStream,
    clip: float = 10.0,
    batch_size: float = 16.0,
    sigma: float = 1.0,
) -> Any:
    """``p -= rate * (g + noise / batch_size)``, the gradient scaled down to the norm ``clip``.

    The noise is normal with the standard deviation ``clip * sigma``, drawn for every element.
    Source: Paddle op ``dpsgd``; Abadi et al. 2016.
    """
    kind = param.dtype.type
    norm = xp.sqrt((grad * grad).sum())
    step = grad / xp.maximum(norm / kind(clip), kind(1))
    if sigma:
        # Box and Muller: 1 - u is never 0.
        uniform = rng.of_all_devices().uniform(xp, (2, *param.shape), param.dtype)
        radius = xp.sqrt(-2 * xp.log(1 - uniform[0]))
        normal = radius * xp.cos(kind(2 * np.pi) * uniform[1])
        step += normal * kind(clip * sigma / batch_size)
    param -= step * scalar(rate)
    return param
