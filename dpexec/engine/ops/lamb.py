"""``lamb`` and ``lars_momentum``: steps in proportion to the size of the parameter."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.ops._optimizers import dense, drawn, optimizer, scalar

_LAMB = "Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow"
_LARS = "Param Grad Velocity LearningRate"


def _norm(xp: Any, x: Any) -> Any:
    return xp.sqrt((x * x).sum())


@optimizer(
    "lamb",
    _LAMB,
    "Param Moment1 Moment2",
    sparse=("Grad",),
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([3.0, 4.0]),
                "Grad": np.array([1.0, -2.0]),
                "LearningRate": np.array([0.5]),
                "Moment1": np.array([0.3, 0.1]),
                "Moment2": np.array([0.2, 0.4]),
                "Beta1Pow": np.array([0.729]),
                "Beta2Pow": np.array([0.99]),
            },
            {"weight_decay": 0.1, "beta2": 0.99},
            expected={
                "ParamOut": np.array([0.5533848, 3.4861188]),
                "Moment1Out": np.array([0.37, -0.11000005]),
                "Moment2Out": np.array([0.208, 0.43599996]),
            },
        ),
        drawn(r, _LAMB, {"weight_decay": 0.01}),
        drawn(r, _LAMB, {"weight_decay": 0.1, "epsilon": 0.001}),
        drawn(r, _LAMB, {"weight_decay": 0.1}, sparse=True),
    ],
    operand_ulps=4,
    capturable=True,
    updates="whole",
    flops=per_element("Param", 18),
)
def lamb(
    xp: Any,
    param: Any,
    grad: Any,
    rate: Any,
    moment1: Any,
    moment2: Any,
    beta1_pow: Any,
    beta2_pow: Any,
    *,
    weight_decay: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
) -> tuple[Any, Any, Any]:
    """``p -= rate * (norm(p) / norm(u)) * u`` with ``u = m / (sqrt(v) + epsilon) + decay * p``.

    ``m`` and ``v`` are running means of the gradient and of its square; as in Paddle 1.8 they
    are not corrected for their start at 0, so the powers of beta are not used. A ratio with a
    norm of 0 counts as 1. A sparse gradient is applied like a dense one.
    Source: Paddle op ``lamb``; You et al. 2019.
    """
    kind = param.dtype.type
    b1, b2, one = kind(beta1), kind(beta2), kind(1)
    grad = dense(xp, grad)
    moment1 *= b1
    moment1 += grad * (one - b1)
    moment2 *= b2
    moment2 += grad * grad * (one - b2)
    update = moment1 / (xp.sqrt(moment2) + kind(epsilon))
    update += kind(weight_decay) * param
    p_norm, u_norm = _norm(xp, param), _norm(xp, update)
    usable = (p_norm > 0) & (u_norm > 0)
    update *= scalar(rate) * xp.where(usable, p_norm / xp.where(usable, u_norm, one), one)
    param -= update
    return param, moment1, moment2


@optimizer(
    "lars_momentum",
    _LARS,
    "Param Velocity",
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([3.0, 4.0]),
                "Grad": np.array([6.0, 8.0]),
                "Velocity": np.array([2.0, 0.0]),
                "LearningRate": np.array([0.5]),
            },
            {"mu": 0.5, "lars_coeff": 0.25, "lars_weight_decay": 0.5},
            expected={
                "ParamOut": np.array([1.625, 3.5]),
                "VelocityOut": np.array([1.375, 0.5]),
            },
        ),
        drawn(r, _LARS, {"mu": 0.9}),
        drawn(r, _LARS, {"mu": 0.9, "lars_coeff": 0.01, "lars_weight_decay": 0.05}),
    ],
    operand_ulps=2,
    capturable=True,
    updates="whole",
    flops=per_element("Param", 8),
)
def lars_momentum(
    xp: Any,
    param: Any,
    grad: Any,
    velocity: Any,
    rate: Any,
    *,
    mu: float,
    lars_coeff: float = 0.001,
    lars_weight_decay: float = 0.0005,
) -> tuple[Any, Any]:
    """``v = mu * v + local * (g + decay * p); p -= v``.

    ``local`` is ``rate * coeff * norm(p) / (norm(g) + decay * norm(p))``, or ``rate`` if a norm
    is 0. Source: Paddle op ``lars_momentum``; You, Gitman, Ginsburg 2017.
    """
    kind = param.dtype.type
    decay = kind(lars_weight_decay)
    rate = scalar(rate)
    p_norm, g_norm = _norm(xp, param), _norm(xp, grad)
    usable = (p_norm > 0) & (g_norm > 0)
    divisor = xp.where(usable, g_norm + decay * p_norm, kind(1))
    local = rate * xp.where(usable, kind(lars_coeff) * p_norm / divisor, kind(1))
    velocity *= kind(mu)
    velocity += local * (grad + decay * param)
    param -= velocity
    return param, velocity
