"""``pad_constant_like``: a tensor padded to the size of another."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_same_dtype


def _infer(x: Spec, y: Spec) -> Spec:
    require_same_dtype(x, y)
    require(
        x.rank == y.rank
        and all(-1 in pair or pair[0] >= pair[1] for pair in zip(x.shape, y.shape, strict=True)),
        f"Y {y} must have as many dimensions as X {x}, none of them larger",
    )
    return x


@op(
    "pad_constant_like",
    inputs="X Y",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4)), "Y": r.normal((2, 3))}, {"pad_value": 1.5}, grad=("Y",)),
        Sample({"X": r.normal((2, 3, 4)), "Y": r.normal((2, 1, 4))}, grad=("Y",)),
        Sample({"X": r.normal((2, 3)), "Y": r.normal((2, 3))}, {"pad_value": -1.0}, grad=("Y",)),
        Sample(
            {"X": r.normal((4, 8)), "Y": r.normal((4, 6))},
            grad=("Y",),
            deviates={
                "Y@GRAD": "takes wrong elements for some sizes, such as rows of 6 padded to 8; "
                "dpexec takes the right ones"
            },
        ),
    ],
    grad_lod="own",
)
def pad_constant_like(xp: Any, x: Any, y: Any, *, pad_value: float = 0.0) -> Any:
    """``y`` in the shape of ``x``, with ``pad_value`` after the end of every dimension.

    Source: Paddle op ``pad_constant_like``.
    """
    out = xp.full(x.shape, pad_value, dtype=y.dtype)
    out[tuple(map(slice, y.shape))] = y
    return out


@pad_constant_like.grad("Y", "Out@GRAD", outputs="Y@GRAD")
def pad_constant_like_grad(xp: Any, y: Any, d_out: Any) -> Any:
    """The part of the gradient that belongs to ``y``; a view."""
    return d_out[tuple(map(slice, y.shape))]
