"""``adamax``: Adam with the largest gradient instead of the root mean square."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.ops._optimizers import drawn, optimizer, scalar

_SLOTS = "Param Grad LearningRate Moment InfNorm Beta1Pow"


@optimizer(
    "adamax",
    _SLOTS,
    "Param Moment InfNorm",
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0, 2.0]),
                "Grad": np.array([0.5, -4.0]),
                "LearningRate": np.array([0.125]),
                "Moment": np.array([0.0, 0.0]),
                "InfNorm": np.array([0.0, 8.0]),
                "Beta1Pow": np.array([0.5]),
            },
            {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.0},
            expected={
                "ParamOut": np.array([0.875, 2.0 + 0.25 / 3]),
                "MomentOut": np.array([0.25, -2.0]),
                "InfNormOut": np.array([0.5, 6.0]),
            },
        ),
        drawn(r, _SLOTS),
        drawn(r, _SLOTS, {"beta1": 0.5, "epsilon": 0.01}),
    ],
    operand_ulps=2,
    capturable=True,
    flops=per_element("Param", 9),
)
def adamax(
    xp: Any,
    param: Any,
    grad: Any,
    rate: Any,
    moment: Any,
    inf_norm: Any,
    beta1_pow: Any,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> tuple[Any, Any, Any]:
    """``u = max(abs(g), b2 * u + epsilon); p -= rate / (1 - b1**t) * m / u``.

    ``m`` is the running mean of the gradient; a separate operator ``scale`` updates ``Beta1Pow``.
    Source: Paddle op ``adamax``; Kingma, Ba 2015.
    """
    kind = param.dtype.type
    b1 = kind(beta1)
    moment *= b1
    moment += grad * (kind(1) - b1)
    inf_norm *= kind(beta2)
    inf_norm += kind(epsilon)
    xp.maximum(inf_norm, abs(grad), out=inf_norm)
    step = moment / inf_norm
    step *= scalar(rate) / (kind(1) - scalar(beta1_pow))
    param -= step
    return param, moment, inf_norm
