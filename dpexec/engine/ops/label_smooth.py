"""``label_smooth``: labels that leave some probability to every class."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import require_float


def _infer(x: Spec, prior: Spec | None, *, epsilon: float = 0.0) -> Spec:
    require_float(x)
    require(x.rank, f"X {x} must have an axis of classes")
    require(0 <= epsilon <= 1, f"epsilon {epsilon} must be between 0 and 1")
    require(
        prior is None or (prior.rank and dims_match(prior.shape[-1], x.shape[-1])),
        f"PriorDist {prior} must have a probability for each class of X {x}",
    )
    require(
        prior is None or dims_match(prior.size, x.shape[-1]),
        f"PriorDist {prior} must be one row, but has {prior and prior.size} elements",
    )
    return x


@op(
    "label_smooth",
    inputs="X PriorDist?",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.uniform(0.0, 1.0, (3, 4))}, {"epsilon": 0.1}),
        Sample(
            {"X": r.uniform(0.0, 1.0, (3, 4)), "PriorDist": r.uniform(0.0, 1.0, (1, 4))},
            {"epsilon": 0.2},
            grad=("X",),
        ),
        Sample({"X": r.uniform(0.0, 1.0, (2, 2, 3))}, {"epsilon": 0.5}),
    ],
    operand_ulps=2,
    capturable=True,
)
def label_smooth(xp: Any, x: Any, prior: Any = None, *, epsilon: float = 0.0) -> Any:
    """``(1 - epsilon) * x + epsilon * prior``; without ``PriorDist``, all classes alike.

    Source: Paddle op ``label_smooth``; Szegedy et al. 2016.
    """
    kind = x.dtype.type
    out = x * kind(1 - epsilon)
    if prior is None:
        out += kind(epsilon / x.shape[-1])
    else:
        out += kind(epsilon) * prior.reshape(-1)
    return out


@label_smooth.grad("Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=1)
def label_smooth_grad(xp: Any, d_out: Any, *, epsilon: float = 0.0) -> Any:
    """``(1 - epsilon) * d_out``."""
    return d_out * d_out.dtype.type(1 - epsilon)
