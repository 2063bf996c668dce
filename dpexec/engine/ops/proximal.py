"""``proximal_gd`` and ``proximal_adagrad``: steps followed by shrinking towards 0."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, SampleRng
from dpexec.engine.ops._optimizers import optimizer, scalar

_SETTINGS: tuple[dict[str, float], ...] = ({}, {"l1": 0.3, "l2": 0.2}, {"l2": 0.5}, {"l1": 2.0})


def _samples(slots: str) -> Any:
    def samples(r: SampleRng) -> list[Sample]:
        def inputs() -> dict[str, Any]:
            made = {slot: r.normal((3, 4)) for slot in ("Param", "Grad")}
            return {**made, "LearningRate": r.uniform(0.1, 0.3, (1,))}

        def moment() -> dict[str, Any]:
            return {"Moment": r.uniform(0.5, 1.5, (3, 4))} if "Moment" in slots else {}

        return [Sample({**inputs(), **moment()}, setting) for setting in _SETTINGS]

    return samples


def _shrink(xp: Any, x: Any, rate: Any, l1: float, l2: float) -> Any:
    """Move ``x`` to the minimum of ``(p - x)**2 / 2 + rate * (l1 * abs(p) + l2 * p**2 / 2)``."""
    kind = x.dtype.type
    if l1 > 0:
        x[...] = xp.sign(x) * xp.maximum(xp.abs(x) - rate * kind(l1), 0)
    x /= 1 + rate * kind(l2)
    return x


@optimizer(
    "proximal_gd",
    "Param Grad LearningRate",
    "Param",
    samples=_samples("Param Grad LearningRate"),
    operand_ulps=2,
)
def proximal_gd(
    xp: Any, param: Any, grad: Any, rate: Any, *, l1: float = 0.0, l2: float = 0.0
) -> Any:
    """Gradient descent, then shrinking by L1 and L2.

    Source: Paddle op ``proximal_gd``; Duchi, Singer, 2009.
    """
    step = scalar(rate)
    param -= step * grad
    return _shrink(xp, param, step, l1, l2)


@optimizer(
    "proximal_adagrad",
    "Param Moment Grad LearningRate",
    "Param Moment",
    samples=_samples("Param Moment Grad LearningRate"),
    operand_ulps=4,
)
def proximal_adagrad(
    xp: Any,
    param: Any,
    moment: Any,
    grad: Any,
    rate: Any,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
) -> tuple[Any, Any]:
    """Adagrad, then shrinking by L1 and L2 at the plain rate.

    Source: Paddle op ``proximal_adagrad``; Duchi, Hazan, Singer, 2011.
    """
    step = scalar(rate)
    moment += grad * grad
    param -= step * grad / xp.sqrt(moment)
    return _shrink(xp, param, step, l1, l2), moment
