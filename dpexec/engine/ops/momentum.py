"""``momentum``: gradient descent with velocity."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.ops._optimizers import MISSED, dense, drawn, optimizer, scalar


@optimizer(
    "momentum",
    "Param Grad Velocity LearningRate",
    "Param Velocity",
    merged_by="fused_momentum",
    sparse=("Grad",),
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0]),
                "Grad": np.array([2.0]),
                "Velocity": np.array([4.0]),
                "LearningRate": np.array([0.5]),
            },
            {"mu": 0.5},
            expected={"ParamOut": np.array([-1.0]), "VelocityOut": np.array([4.0])},
        ),
        Sample(
            {
                "Param": np.array([1.0]),
                "Grad": np.array([2.0]),
                "Velocity": np.array([4.0]),
                "LearningRate": np.array([0.5]),
            },
            {"mu": 0.5, "use_nesterov": True},
            expected={"ParamOut": np.array([-1.0]), "VelocityOut": np.array([4.0])},
        ),
        drawn(r, "Param Grad Velocity LearningRate", {"mu": 0.9}),
        drawn(r, "Param Grad Velocity LearningRate", {"mu": 0.9}, sparse=True),
        Sample(
            {
                "Param": np.zeros((7, 1)),
                "Grad": SelectedRows(np.array([5, 1]), 7, np.array([[1.0], [2.0]])),
                "Velocity": np.zeros((7, 1)),
                "LearningRate": np.array([0.5]),
            },
            {"mu": 0.9},
            deviates={"ParamOut": MISSED, "VelocityOut": MISSED},
        ),
        drawn(r, "Param Grad Velocity LearningRate", {"mu": 0.9, "use_nesterov": True}),
        drawn(
            r, "Param Grad Velocity LearningRate", {"mu": 0.9, "use_nesterov": True}, sparse=True
        ),
    ],
    operand_ulps=2,
    capturable=True,
    flops=per_element("Param", 4),
)
def momentum(
    xp: Any,
    param: Any,
    grad: Any,
    velocity: Any,
    rate: Any,
    *,
    mu: float,
    use_nesterov: bool = False,
) -> tuple[Any, Any]:
    """``v = mu * v + g; p -= rate * v``, with Nesterov ``p -= rate * (g + mu * v)``.

    A sparse gradient is applied like a dense one: velocity decays and moves the other rows, too.
    (Paddle itself misses rows of the gradient that are not in ascending order.)
    Source: Paddle op ``momentum``; Sutskever et al. 2013.
    """
    mu = param.dtype.type(mu)
    velocity *= mu
    if isinstance(grad, SelectedRows) and not use_nesterov:
        grad.add_to(xp, velocity)
        step = velocity
    else:
        grad = dense(xp, grad)
        velocity += grad
        step = velocity * mu + grad if use_nesterov else velocity
    param -= step * scalar(rate)
    return param, velocity
