"""``bce_loss`` and ``nll_loss``: losses of probabilities and of their logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.ranges import require_between
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._edges import NUMBERS, SMALL, smaller
from dpexec.engine.ops._labels import positions
from dpexec.engine.ops._rows import fill_rows
from dpexec.engine.ops._shapes import require_shape_of, same_dims

_LEAST_LOG = -100
_LEAST_VARIANCE = 1e-12


def _infer(x: Spec, label: Spec) -> Spec:
    require_shape_of(label, x, "Label", "X")
    return x


@op(
    "bce_loss",
    ulps=4,
    inputs="X Label",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {"X": r.uniform(0.1, 0.9, (3, 4)), "Label": r.uniform(0.0, 1.0, (3, 4))}, grad=("X",)
        ),
        Sample(
            {"X": r.uniform(0.1, 0.9, (2, 3, 2)), "Label": r.integers(0, 2, (2, 3, 2)) * 1.0},
            grad=("X",),
        ),
        Sample({"X": r.uniform(0.1, 0.9, (5, 1)), "Label": np.ones((5, 1))}, grad=("X",)),
        smaller(
            Sample({"X": np.abs(NUMBERS), "Label": np.zeros((3, 4))}, grad=("X",)),
            1e-5,
            "Out",
            SMALL,
        ),
    ],
    grad_lod="own",
)
def bce_loss(xp: Any, x: Any, label: Any) -> Any:
    """``-label * log(x) - (1 - label) * log(1 - x)``, logarithms not below -100.

    Source: Paddle op ``bce_loss``.

    Raises:
        ValueError: X is not between 0 and 1.
    """
    require_between(xp, x, 0, 1, "X >= 0 and <= 1 expected, but got {}")
    with np.errstate(divide="ignore"):
        yes, no = xp.log(x), xp.log1p(-x)
    xp.maximum(yes, _LEAST_LOG, out=yes)
    xp.maximum(no, _LEAST_LOG, out=no)
    return (label - 1) * no - label * yes


@bce_loss.grad("X", "Label", "Out@GRAD", outputs="X@GRAD", operand_ulps=2)
def bce_loss_grad(xp: Any, x: Any, label: Any, d_out: Any) -> Any:
    """``(x - label) / (x * (1 - x))``."""
    return d_out * (x - label) / xp.maximum(x * (1 - x), x.dtype.type(_LEAST_VARIANCE))


def _infer_nll(
    x: Spec, label: Spec, weight: Spec | None, *, reduction: str = "mean"
) -> tuple[Spec, Spec]:
    require(x.rank in (2, 4), f"X {x} must have 2 or 4 dimensions")
    require(reduction in ("none", "mean", "sum"), f"reduction {reduction} is not none, mean or sum")
    shape = (x.shape[0], *x.shape[2:])
    require(
        label.dtype == VarType.INT64 and same_dims(label.shape, shape),
        f"Label {label} must be int64 with the shape {list(shape)} for X {x}",
    )
    require(
        weight is None or (weight.rank == 1 and dims_match(weight.shape[0], x.shape[1])),
        f"Weight {weight} must have one element per class of X {x}",
    )
    one = x.replace(shape=(1,), lod_level=0)
    return one.replace(shape=shape) if reduction == "none" else one, one


@op(
    "nll_loss",
    inputs="X Label Weight?",
    outputs="Out Total_weight",
    infer=_infer_nll,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((4, 5)), "Label": r.integers(0, 5, (4,))}),
        Sample(
            {
                "X": r.normal((2, 3, 2, 2)),
                "Label": r.integers(0, 3, (2, 2, 2)),
                "Weight": r.uniform(0.5, 1.5, (3,)),
            },
            {"ignore_index": 1},
            grad=("X",),
        ),
        Sample({"X": r.normal((4, 5)), "Label": r.integers(0, 5, (4,))}, {"reduction": "none"}),
        Sample({"X": r.normal((4, 5)), "Label": r.integers(0, 5, (4,))}, {"reduction": "sum"}),
    ],
    operand_ulps=2,
)
def nll_loss(
    xp: Any,
    x: Any,
    label: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> tuple[Any, Any]:
    """``-weight[label] * x[label]`` for log-probabilities ``(batch, classes, ...)``, then reduced.

    ``mean`` divides by ``Total_weight``, the sum of the weights of the labels that count.
    Source: Paddle op ``nll_loss``.
    """
    rows, columns, weights = _weights(xp, x, label, weight, ignore_index)
    losses = -_by_row(xp, x)[rows, columns] * weights
    total = weights.sum()
    if reduction == "none":
        return losses.reshape(label.shape), xp.zeros(1, dtype=x.dtype)
    loss = losses.sum()
    if reduction == "mean":
        loss = loss / xp.where(total == 0, 1, total)
    return loss.astype(x.dtype, copy=False).reshape(1), total.reshape(1)


def _infer_nll_grad(x: Spec, *_: Spec | None) -> Spec:
    return x.replace(lod_level=0)


@nll_loss.grad(
    "X Label Weight? Total_weight Out@GRAD",
    outputs="X@GRAD",
    infer=_infer_nll_grad,
    operand_ulps=1,
)
def nll_loss_grad(
    xp: Any,
    x: Any,
    label: Any,
    weight: Any,
    total: Any,
    d_out: Any,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Any:
    """``-weight[label]`` at the label."""
    rows, columns, weights = _weights(xp, x, label, weight, ignore_index)
    if reduction == "mean":
        d_out = d_out / xp.where(total == 0, 1, total).astype(x.dtype)
    d_rows = xp.zeros((rows.size, x.shape[1]), dtype=x.dtype)
    d_rows[rows, columns] = -weights * d_out.reshape(-1)
    d_x = xp.moveaxis(d_rows.reshape(*label.shape, x.shape[1]), -1, 1)
    return xp.ascontiguousarray(d_x)


def _by_row(xp: Any, x: Any) -> Any:
    return xp.moveaxis(x, 1, -1).reshape(-1, x.shape[1])


def _weights(xp: Any, x: Any, label: Any, weight: Any, ignore_index: int) -> tuple[Any, Any, Any]:
    rows, columns, ignored = positions(xp, label, x.shape[1], ignore_index)
    weights = xp.ones(columns.shape, dtype=x.dtype) if weight is None else weight[columns]
    if ignored is not None:
        weights = fill_rows(xp, weights, ignored, 0)
    return rows, columns, weights
