"""``adadelta``: steps scaled by the ratio of earlier updates to gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.ops._optimizers import drawn, optimizer

_SLOTS = "Param Grad AvgSquaredGrad AvgSquaredUpdate"


@optimizer(
    "adadelta",
    _SLOTS,
    "Param AvgSquaredGrad AvgSquaredUpdate",
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0]),
                "Grad": np.array([2.0]),
                "AvgSquaredGrad": np.array([3.0]),
                "AvgSquaredUpdate": np.array([0.75]),
            },
            {"rho": 0.5, "epsilon": 0.5},
            expected={
                "ParamOut": np.array([1.0 - 2.0 * (1.5 / 4.0) ** 0.5]),
                "AvgSquaredGradOut": np.array([3.5]),
                "AvgSquaredUpdateOut": np.array([1.0]),
            },
        ),
        drawn(r, _SLOTS),
        drawn(r, _SLOTS, {"rho": 0.8, "epsilon": 0.01}),
    ],
    operand_ulps=2,
    capturable=True,
    flops=per_element("Param", 12),
)
def adadelta(
    xp: Any,
    param: Any,
    grad: Any,
    square_grad: Any,
    square_update: Any,
    *,
    rho: float = 0.95,
    epsilon: float = 1e-6,
) -> tuple[Any, Any, Any]:
    """``p -= sqrt((d + epsilon) / (s + epsilon)) * g``: running means of squares ``s`` and ``d``.

    ``s`` is the mean of the squared gradients. ``d`` is that of the squared steps, where a step is
    computed with the old ``d``. Then the parameter moves by the *new* ``d``. That differs from
    Zeiler's formula, but Paddle's kernel does it when it works in place, as always in a program.
    There is no learning rate. Source: Paddle op ``adadelta``; Zeiler 2012.
    """
    kind = param.dtype.type
    kept, tiny = kind(rho), kind(epsilon)
    rest = kind(1) - kept
    square_grad *= kept
    square_grad += rest * grad * grad
    scale = square_grad + tiny
    step = (square_update + tiny) / scale * grad * grad  # the square of the step
    square_update *= kept
    square_update += rest * step
    xp.divide(square_update + tiny, scale, out=step)
    xp.sqrt(step, out=step)
    step *= grad
    param -= step
    return param, square_grad, square_update
