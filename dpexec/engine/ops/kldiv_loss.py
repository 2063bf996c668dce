"""``kldiv_loss``: Kullback-Leibler divergence from log-probabilities."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_float, require_shape_of

REDUCTIONS = ("none", "mean", "batchmean", "sum")


def _infer(x: Spec, target: Spec, *, reduction: str = "mean") -> Spec:
    require_float(x)
    require_shape_of(target, x, "Target", "X")
    require(reduction in REDUCTIONS, f"reduction {reduction} must be one of {REDUCTIONS}")
    return x.replace(shape=x.shape if reduction == "none" else (1,), lod_level=0)


def _divisor(shape: tuple[int, ...], size: int, reduction: str) -> int:
    return {"mean": size, "batchmean": shape[0]}.get(reduction, 1)


@op(
    "kldiv_loss",
    ulps=4,
    inputs="X Target",
    outputs="Loss",
    infer=_infer,
    samples=lambda r: [
        Sample(
            {"X": r.normal((3, 4)), "Target": r.uniform(-0.2, 1.0, (3, 4))},
            {"reduction": reduction},
            grad=("X",),
        )
        for reduction in REDUCTIONS
    ],
)
def kldiv_loss(xp: Any, x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """``target * (log(target) - x)``, 0 where the target is not positive, then reduced.

    ``batchmean`` divides the sum by the batch size, ``mean`` by the number of elements.
    Source: Paddle op ``kldiv_loss``.
    """
    without = target <= 0  # false for NaN, which then shows in the loss
    terms = xp.where(without, 0, target * (xp.log(xp.where(without, 1, target)) - x))
    if reduction == "none":
        return terms
    return (terms.sum() / x.dtype.type(_divisor(x.shape, x.size, reduction))).reshape(1)


@kldiv_loss.grad("X", "Target", "Loss@GRAD", outputs="X@GRAD", dense=True, operand_ulps=1)
def kldiv_loss_grad(xp: Any, x: Any, target: Any, d_loss: Any, *, reduction: str = "mean") -> Any:
    """``-target`` where it is positive."""
    share = d_loss / x.dtype.type(_divisor(x.shape, x.size, reduction))
    return -xp.maximum(target, 0) * share
