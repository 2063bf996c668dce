"""``modified_huber_loss`` and ``sigmoid_focal_loss``: losses of classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._edges import EXTREMA, edge, spoiled
from dpexec.engine.ops._shapes import require_float, require_same_dtype, require_same_shape
from dpexec.engine.ops.sigmoid import sigmoid_array
from dpexec.engine.ops.softplus import softplus_array


def _infer_huber(x: Spec, y: Spec) -> tuple[Spec, Spec]:
    require_float(x)
    require_same_dtype(x, y)
    require_same_shape(x, y)
    require(x.rank == 2 and x.shape[1] in (1, -1), f"X {x} must be a column of scores")
    dense = x.replace(lod_level=0)
    return dense, dense


@op(
    "modified_huber_loss",
    inputs="X Y",
    outputs="IntermediateVal Out",
    infer=_infer_huber,
    samples=lambda r: [
        Sample({"X": r.normal((6, 1)) * 2, "Y": np.array([[0.0], [1.0]] * 3)}, grad=("X",)),
        Sample({"X": r.normal((3, 1)), "Y": np.array([[1.0]] * 3)}, grad=("X",)),
        Sample(
            {"X": np.array([[-2.0], [0.5], [2.0]]), "Y": np.array([[1.0], [1.0], [1.0]])},
            grad=("X",),
            smooth=False,
            expected={"Out": np.array([[8.0], [0.25], [0.0]])},
        ),
        spoiled(
            Sample({"X": r.normal((6, 1)), "Y": np.array([[0.0], [1.0]] * 3)}, grad=("X",)),
            "X",
            np.nan,
            "Out X@GRAD",
            EXTREMA,
        ),
    ],
    operand_ulps=4,
)
def modified_huber_loss(xp: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """With ``m = x * (2 * y - 1)``: ``max(0, 1 - m) ** 2`` where m is at least -1, else ``-4 * m``.

    ``y`` is 0 or 1. ``m`` is returned, too. Source: Paddle op ``modified_huber_loss``; Zhang, 2004.
    """
    margin = x * (2 * y - 1)
    near = xp.maximum(1 - margin, 0)
    return margin, xp.where(margin < -1, -4 * margin, near * near)


@modified_huber_loss.grad(
    "Y IntermediateVal Out@GRAD",
    outputs="X@GRAD",
    infer=lambda y, margin, d_out: margin,
    operand_ulps=2,
)
def modified_huber_loss_grad(xp: Any, y: Any, margin: Any, d_out: Any) -> Any:
    """-4 below a margin of -1, 0 above 1, linear between them."""
    sign = 2 * y - 1
    slope = xp.where(margin < -1, -4 * sign, -2 * xp.maximum(1 - margin, 0) * sign)
    return slope.astype(d_out.dtype, copy=False) * d_out


def _infer_focal(x: Spec, label: Spec, count: Spec) -> Spec:
    require_float(x)
    require(x.rank == 2, f"X {x} must be scores (N, classes)")
    require(
        label.dtype == VarType.INT32 and label.rank == 2 and label.shape[1] in (1, -1),
        f"Label {label} must be an int32 column",
    )
    require(dims_match(label.shape[0], x.shape[0]), f"Label {label} must have the rows of X {x}")
    require(
        count.dtype == VarType.INT32 and count.size in (1, -1),
        f"FgNum {count} must be one int32 number",
    )
    return x


def _focal_inputs(r: Any, rows: int, classes: int) -> dict[str, Any]:
    return {
        "X": r.normal((rows, classes)) * 2,
        "Label": r.integers(-1, classes + 1, (rows, 1)).astype(np.int32),
        "FgNum": np.array([3], dtype=np.int32),
    }


@op(
    "sigmoid_focal_loss",
    inputs="X Label FgNum",
    infer=_infer_focal,
    samples=lambda r: [
        Sample(_focal_inputs(r, 8, 3)),
        Sample(_focal_inputs(r, 5, 1), {"gamma": 1.0, "alpha": 0.5}),
        Sample(_focal_inputs(r, 6, 4), {"gamma": 0.5, "alpha": 0.75}),
        edge(
            {
                "X": np.array([[-200.0, 1.0]]),
                "Label": np.array([[1]], np.int32),
                "FgNum": np.array([1], np.int32),
            },
            "Out",
            "raises probabilities to at least 1.2e-38; dpexec does not",
        ),
    ],
    operand_ulps=8,
)
def sigmoid_focal_loss(
    xp: Any, x: Any, label: Any, count: Any, *, gamma: float = 2.0, alpha: float = 0.25
) -> Any:
    """Cross entropy of independent classes, with smaller weights for easy samples.

    ``-alpha * (1 - p)**gamma * log(p)`` for the class of the label, ``-(1 - alpha) * p**gamma *
    log(1 - p)`` for the others, over ``FgNum``. Labels count from 1; 0 is background, -1 does
    not count. Source: Paddle op ``sigmoid_focal_loss``; Lin and others, 2017.
    """
    own, other = _focal_weights(xp, x, label, count, alpha)
    p, kind = sigmoid_array(xp, x), x.dtype.type
    log_p, log_rest = -softplus_array(xp, -x), -softplus_array(xp, x)
    hit = sigmoid_array(xp, -x) ** kind(gamma) * log_p
    return -(own * hit + other * p ** kind(gamma) * log_rest)


def _focal_weights(xp: Any, x: Any, label: Any, count: Any, alpha: float) -> tuple[Any, Any]:
    """Weights of both terms for every element."""
    classes = xp.arange(1, x.shape[1] + 1)
    is_own = label == classes
    is_other = (label != -1) & ~is_own
    over = xp.maximum(count.reshape(()), 1).astype(x.dtype)
    kind = x.dtype.type
    return is_own * (kind(alpha) / over), is_other * (kind(1 - alpha) / over)


@sigmoid_focal_loss.grad(
    "X", "Label", "FgNum", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=4
)
def sigmoid_focal_loss_grad(
    xp: Any,
    x: Any,
    label: Any,
    count: Any,
    d_out: Any,
    *,
    gamma: float = 2.0,
    alpha: float = 0.25,
) -> Any:
    """By the chain rule."""
    own, other = _focal_weights(xp, x, label, count, alpha)
    p, power = sigmoid_array(xp, x), x.dtype.type(gamma)
    log_p, log_rest = -softplus_array(xp, -x), -softplus_array(xp, x)
    rest = sigmoid_array(xp, -x)
    hit = rest**power * (rest - p * power * log_p)
    miss = p**power * (log_rest * rest * power - p)
    return -(own * hit + other * miss) * d_out
