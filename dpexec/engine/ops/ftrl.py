"""``ftrl``: follow the regularised leader."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, op
from dpexec.engine.ops._optimizers import drawn, like_inputs, scalar

_SLOTS = "Param SquaredAccumulator LinearAccumulator Grad LearningRate"


@op(
    "ftrl",
    inputs=_SLOTS,
    outputs="ParamOut SquaredAccumOut LinearAccumOut",
    infer=like_inputs(_SLOTS, "Param SquaredAccumulator LinearAccumulator"),
    inplace={
        "ParamOut": "Param",
        "SquaredAccumOut": "SquaredAccumulator",
        "LinearAccumOut": "LinearAccumulator",
    },
    no_grad=True,
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0, 1.0]),
                "SquaredAccumulator": np.array([16.0, 16.0]),
                "LinearAccumulator": np.array([0.0, 0.0]),
                "Grad": np.array([3.0, 3.0]),
                "LearningRate": np.array([0.5]),
            },
            {"l1": 0.5, "l2": 0.25},
            expected={
                "ParamOut": np.array([-0.5 / 10.5, -0.5 / 10.5]),
                "SquaredAccumOut": np.array([25.0, 25.0]),
                "LinearAccumOut": np.array([1.0, 1.0]),
            },
        ),
        drawn(r, _SLOTS, {"l1": 0.3, "l2": 0.2}),
        drawn(r, _SLOTS, {"l1": 0.3, "l2": 0.2, "lr_power": -0.7}),
        drawn(r, _SLOTS),
    ],
    operand_ulps=8,
    capturable=True,
    flops=per_element("Param", 12),
)
def ftrl(
    xp: Any,
    param: Any,
    square: Any,
    linear: Any,
    grad: Any,
    rate: Any,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    lr_power: float = -0.5,
) -> tuple[Any, Any, Any]:
    """``p = (l1 * sign(z) - z) / (n**-lr_power / rate + 2 * l2)``, 0 where ``abs(z) <= l1``.

    ``n`` is the sum of the squared gradients; ``z`` sums ``g - (change of n**-lr_power) / rate *
    p``. Source: Paddle op ``ftrl``; McMahan et al. 2013.
    """
    kind = param.dtype.type
    rate = scalar(rate)
    rise = _rise(xp, square, grad * grad, lr_power)
    square += grad * grad
    after = _power(xp, square, lr_power)
    linear += grad - rise / rate * param
    shrunk = kind(l1) * xp.sign(linear) - linear
    shrunk /= after / rate + kind(2 * l2)
    param[...] = xp.where(abs(linear) > kind(l1), shrunk, kind(0))
    return param, square, linear


def _rise(xp: Any, square: Any, more: Any, lr_power: float) -> Any:
    """The increase of the power of ``square`` by ``more``, exact even if ``more`` is very small."""
    before, after = _power(xp, square, lr_power), _power(xp, square + more, lr_power)
    if lr_power == -0.5:
        return more / xp.where(after > 0, before + after, 1)
    share = more / xp.where(square > 0, square, 1)
    near = before * xp.expm1(square.dtype.type(-lr_power) * xp.log1p(share))
    return xp.where(square > 0, near, after)


def _power(xp: Any, square: Any, lr_power: float) -> Any:
    return xp.sqrt(square) if lr_power == -0.5 else square ** square.dtype.type(-lr_power)
