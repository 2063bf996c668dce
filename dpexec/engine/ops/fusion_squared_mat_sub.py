"""``fusion_squared_mat_sub``: the square of a product minus the product of squares."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops.mul import mul
from dpexec.engine.ops.powers import square


def _infer(x: Spec, y: Spec) -> tuple[Spec, Spec, Spec, Spec]:
    require(x.rank == y.rank == 2, f"X {x} and Y {y} must be matrices")
    assert mul.infer is not None
    out = mul.infer(x, y).replace(lod_level=0)
    return x.replace(lod_level=0), y.replace(lod_level=0), out, out


@op(
    "fusion_squared_mat_sub",
    inputs="X Y",
    outputs="SquaredX SquaredY SquaredXY Out",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4)), "Y": r.normal((4, 2))}),
        Sample({"X": r.normal((1, 8)), "Y": r.normal((8, 8))}, {"scalar": 0.5}),
        Sample({"X": r.normal((5, 1)), "Y": r.normal((1, 3))}, {"scalar": -2.0}),
    ],
)
def fusion_squared_mat_sub(xp: Any, x: Any, y: Any, *, scalar: float = 1.0) -> tuple[Any, ...]:
    """``scalar * ((x @ y)^2 - x^2 @ y^2)``, with powers of every element.

    The squares of both matrices and of their product are returned, too. Source: Paddle op
    ``fusion_squared_mat_sub``; Rendle, 2010 (factorization machines).
    """
    squares, product = (square(xp, x), square(xp, y)), square(xp, mul(xp, x, y))
    return (*squares, product, (product - mul(xp, *squares)) * scalar)
