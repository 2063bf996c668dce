"""``adagrad`` and ``decayed_adagrad``: steps divided by the size of the gradients so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.ops._edges import SQUARES, spoiled
from dpexec.engine.ops._optimizers import drawn, optimizer, scalar

_SLOTS = "Param Grad Moment LearningRate"


def _step(xp: Any, grad: Any, moment: Any, rate: Any, epsilon: float) -> Any:
    size = xp.sqrt(moment)
    size += moment.dtype.type(epsilon)
    step = grad * scalar(rate)
    step /= size
    return step


@optimizer(
    "adagrad",
    _SLOTS,
    "Param Moment",
    sparse=("Grad",),
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0]),
                "Grad": np.array([3.0]),
                "Moment": np.array([16.0]),
                "LearningRate": np.array([0.5]),
            },
            expected={"ParamOut": np.array([0.70000006]), "MomentOut": np.array([25.0])},
        ),
        drawn(r, _SLOTS),
        drawn(r, _SLOTS, {"epsilon": 0.5}),
        drawn(r, _SLOTS, sparse=True),
        spoiled(drawn(r, _SLOTS), "Grad", 1e30, "ParamOut", SQUARES),
    ],
    operand_ulps=2,
    capturable=True,
    updates="rows",
    flops=per_element("Param", 6),
)
def adagrad(
    xp: Any, param: Any, grad: Any, moment: Any, rate: Any, *, epsilon: float = 1e-6
) -> tuple[Any, Any]:
    """``s += g * g; p -= rate * g / (sqrt(s) + epsilon)``; of a sparse gradient, only its rows.

    Source: Paddle op ``adagrad``; Duchi, Hazan, Singer 2011.
    """
    if isinstance(grad, SelectedRows):
        rows, grad = grad.totals(xp)
        size = moment[rows]
        size += grad * grad
        moment[rows] = size
        param[rows] -= _step(xp, grad, size, rate, epsilon)
    else:
        moment += grad * grad
        param -= _step(xp, grad, moment, rate, epsilon)
    return param, moment


@optimizer(
    "decayed_adagrad",
    _SLOTS,
    "Param Moment",
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([3.0]),
                "Grad": np.array([2.0]),
                "Moment": np.array([0.0]),
                "LearningRate": np.array([0.5]),
            },
            {"decay": 0.75},
            expected={"ParamOut": np.array([2.000001]), "MomentOut": np.array([1.0])},
        ),
        drawn(r, _SLOTS),
        drawn(r, _SLOTS, {"decay": 0.5, "epsilon": 0.5}),
    ],
    operand_ulps=2,
    flops=per_element("Param", 8),
)
def decayed_adagrad(
    xp: Any,
    param: Any,
    grad: Any,
    moment: Any,
    rate: Any,
    *,
    decay: float = 0.95,
    epsilon: float = 1e-6,
) -> tuple[Any, Any]:
    """``s = decay * s + (1 - decay) * g * g; p -= rate * g / (sqrt(s) + epsilon)``.

    Source: Paddle op ``decayed_adagrad``.
    """
    kept = param.dtype.type(decay)
    moment *= kept
    square = grad * (param.dtype.type(1) - kept)
    square *= grad
    moment += square
    param -= _step(xp, grad, moment, rate, epsilon)
    return param, moment
