"""``adam``: steps scaled by running means of the gradient and of its square."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample
from dpexec.engine.ops._optimizers import drawn, optimizer, scalar

_SLOTS = "Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow Beta1Tensor? Beta2Tensor?"


@optimizer(
    "adam",
    _SLOTS,
    "Param Moment1 Moment2 Beta1Pow Beta2Pow",
    attrs={"min_row_size_to_use_multithread": 1000},
    sparse=("Grad",),
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0, 2.0]),
                "Grad": np.array([0.5, 0.0]),
                "LearningRate": np.array([0.125]),
                "Moment1": np.array([0.0, 0.0]),
                "Moment2": np.array([0.0, 0.0]),
                "Beta1Pow": np.array([0.5]),
                "Beta2Pow": np.array([0.75]),
            },
            {"beta1": 0.5, "beta2": 0.75},
            expected={
                "ParamOut": np.array([0.875, 2.0]),
                "Moment1Out": np.array([0.25, 0.0]),
                "Moment2Out": np.array([0.0625, 0.0]),
                "Beta1PowOut": np.array([0.25]),
                "Beta2PowOut": np.array([0.5625]),
            },
        ),
        drawn(r, _SLOTS),
        drawn(r, _SLOTS, sparse=True),
        drawn(r, _SLOTS, {"lazy_mode": True}),
        drawn(r, _SLOTS, {"lazy_mode": True}, sparse=True),
    ],
    operand_ulps=2,
    capturable=True,
    updates="rows",
    merged_by="fused_adam",
    flops=per_element("Param", 12),
)
def adam(
    xp: Any,
    param: Any,
    grad: Any,
    rate: Any,
    moment1: Any,
    moment2: Any,
    beta1_pow: Any,
    beta2_pow: Any,
    beta1_tensor: Any = None,
    beta2_tensor: Any = None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    lazy_mode: bool = False,
) -> tuple[Any, ...]:
    """``p -= rate_t * m / (sqrt(v) + epsilon)`` with ``rate_t = rate*sqrt(1-b2**t)/(1-b1**t)``.

    A sparse gradient is applied like a dense one; with ``lazy_mode``, only to its rows. Both kinds
    of gradients use the powers of beta of this step; Paddle's sparse kernel for CPUs uses those of
    the next step.
    Source: Paddle op ``adam``; Kingma, Ba 2015.
    """
    kind = param.dtype.type
    b1 = kind(beta1) if beta1_tensor is None else scalar(beta1_tensor)
    b2 = kind(beta2) if beta2_tensor is None else scalar(beta2_tensor)
    one = kind(1)
    rate = scalar(rate) * xp.sqrt(one - scalar(beta2_pow)) / (one - scalar(beta1_pow))
    if isinstance(grad, SelectedRows) and lazy_mode:
        rows, value = grad.totals(xp)
        m, v = moment1[rows], moment2[rows]
        _blend(xp, m, v, value, b1, b2, one)
        moment1[rows], moment2[rows] = m, v
        param[rows] -= _step(xp, m, v, rate, kind(epsilon))
    else:
        _blend(xp, moment1, moment2, grad, b1, b2, one)
        param -= _step(xp, moment1, moment2, rate, kind(epsilon))
    beta1_pow *= b1
    beta2_pow *= b2
    return param, moment1, moment2, beta1_pow, beta2_pow


def _blend(xp: Any, m: Any, v: Any, grad: Any, b1: Any, b2: Any, one: Any) -> None:
    """Move the running means towards the gradient and its square, in place."""
    m *= b1
    v *= b2
    if isinstance(grad, SelectedRows):
        rows, value = grad.totals(xp)
        m[rows] += value * (one - b1)
        v[rows] += _scaled_square(value, one - b2)
    else:
        m += grad * (one - b1)
        v += _scaled_square(grad, one - b2)


def _scaled_square(x: Any, factor: Any) -> Any:
    out = x * factor
    out *= x
    return out


def _step(xp: Any, m: Any, v: Any, rate: Any, epsilon: Any) -> Any:
    step = xp.sqrt(v)
    step += epsilon
    xp.divide(m, step, out=step)
    step *= rate
    return step
