"""``rmsprop``: steps divided by a running root mean square of the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.ops._optimizers import MISSED, dense, drawn, optimizer, scalar

_SLOTS = "Param MeanSquare MeanGrad? LearningRate Grad Moment"
_DRAWN = _SLOTS.replace("?", "")


@optimizer(
    "rmsprop",
    _SLOTS,
    "Param Moment MeanSquare MeanGrad",
    sparse=("Grad",),
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0]),
                "MeanSquare": np.array([1.0]),
                "MeanGrad": np.array([0.0]),
                "LearningRate": np.array([0.5]),
                "Grad": np.array([7.0]),
                "Moment": np.array([2.0]),
            },
            {"decay": 0.5, "momentum": 0.25},
            expected={
                "ParamOut": np.array([-0.2]),
                "MomentOut": np.array([1.2]),
                "MeanSquareOut": np.array([25.0]),
            },
        ),
        drawn(r, _DRAWN, {"decay": 0.95, "momentum": 0.1, "epsilon": 1e-6}),
        drawn(r, _DRAWN, {"decay": 0.95, "momentum": 0.1, "epsilon": 1e-6}, sparse=True),
        Sample(
            {
                **{name: np.zeros((7, 1)) for name in ("Param", "MeanSquare", "Moment")},
                "Grad": SelectedRows(np.array([5, 1]), 7, np.array([[1.0], [2.0]])),
                "LearningRate": np.array([0.5]),
            },
            {"epsilon": 1.0},
            deviates=dict.fromkeys(("ParamOut", "MomentOut", "MeanSquareOut"), MISSED),
        ),
        drawn(r, _DRAWN, {"decay": 0.95, "momentum": 0.1, "epsilon": 1e-6, "centered": True}),
        drawn(
            r,
            _DRAWN,
            {"decay": 0.95, "momentum": 0.1, "epsilon": 1e-6, "centered": True},
            sparse=True,
        ),
    ],
    operand_ulps=2,
    capturable=True,
    flops=per_element("Param", 9),
)
def rmsprop(
    xp: Any,
    param: Any,
    mean_square: Any,
    mean_grad: Any,
    rate: Any,
    grad: Any,
    moment: Any,
    *,
    epsilon: float = 1e-10,
    decay: float = 0.9,
    momentum: float = 0.0,
    centered: bool = False,
) -> tuple[Any, ...]:
    """``s = decay*s + (1-decay)*g*g; m = momentum*m + rate*g/sqrt(s + epsilon); p -= m``.

    ``centered`` subtracts the square of the running mean of the gradient from ``s`` under the
    root. A sparse gradient is applied like a dense one. (Paddle itself misses rows of the gradient
    that are not in ascending order.) Source: Paddle op ``rmsprop``; Hinton 2012.
    """
    kind = param.dtype.type
    kept = kind(decay)
    rest = kind(1) - kept
    grad = dense(xp, grad)
    mean_square *= kept
    work = grad * rest
    work *= grad
    mean_square += work
    if centered:
        mean_grad *= kept
        mean_grad += grad * rest
        xp.multiply(mean_grad, mean_grad, out=work)
        xp.subtract(mean_square, work, out=work)
        work += kind(epsilon)
    else:
        xp.add(mean_square, kind(epsilon), out=work)
    xp.sqrt(work, out=work)
    xp.divide(grad, work, out=work)
    work *= scalar(rate)
    moment *= kind(momentum)
    moment += work
    param -= moment
    return param, moment, mean_square, mean_grad
