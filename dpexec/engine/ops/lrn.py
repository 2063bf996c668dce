"""``lrn``: local response normalisation across channels."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._edges import SQUARES, spoiled
from dpexec.engine.ops._shapes import require_float
from dpexec.engine.ops._windows import has_channels_last


def _infer(
    x: Spec,
    *,
    n: int = 5,
    k: float = 2.0,
    alpha: float = 0.0001,
    beta: float = 0.75,
    data_format: str = "AnyLayout",
) -> tuple[Spec, Spec]:
    require_float(x)
    require(x.rank == 4, f"X {x} must have 4 dimensions")
    require(n > 0 and n % 2 == 1, f"n must be an odd positive number, but is {n}")
    for name, value in (("k", k), ("alpha", alpha), ("beta", beta)):
        require(value > 0, f"{name} must be positive, but is {value}")
    has_channels_last(data_format)
    return x, x.replace(lod_level=0)


def _over_neighbours(xp: Any, x: Any, n: int, layout: str) -> Any:
    """Sums over ``n`` neighbouring channels, fewer at the ends."""
    axis, half = 3 if has_channels_last(layout) else 1, n // 2
    pads = [(0, 0)] * 4
    pads[axis] = (half, half)
    padded, size = xp.pad(x, pads), x.shape[axis]
    section = [slice(None)] * 4
    total = xp.zeros_like(x)
    for i in range(n):
        section[axis] = slice(i, i + size)
        total += padded[tuple(section)]
    return total


@op(
    "lrn",
    inputs="X",
    outputs="Out MidOut",
    infer=_infer,
    attrs={"use_mkldnn": False, "is_test": False},
    samples=lambda r: [
        Sample({"X": r.normal((2, 7, 3, 2))}, {"alpha": 0.1}),
        Sample({"X": r.normal((2, 2, 3, 4))}, {"n": 3, "k": 1.0, "alpha": 0.5, "beta": 0.5}),
        Sample(
            {"X": r.normal((2, 3, 2, 6))},
            {"n": 3, "alpha": 0.2, "data_format": "NHWC"},
        ),
        spoiled(Sample({"X": r.normal((2, 7, 3, 2))}), "X", 1e30, "Out MidOut X@GRAD", SQUARES),
    ],
    operand_ulps=4,
)
def lrn(
    xp: Any,
    x: Any,
    *,
    n: int = 5,
    k: float = 2.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    data_format: str = "AnyLayout",
) -> tuple[Any, Any]:
    """``x / MidOut**beta``, ``MidOut = k + alpha * sum(x**2)`` over ``n`` neighbouring channels.

    Source: Paddle op ``lrn``; Krizhevsky et al. 2012.
    """
    middle = _over_neighbours(xp, x * x, n, data_format) * x.dtype.type(alpha) + x.dtype.type(k)
    return x * middle ** x.dtype.type(-beta), middle


@lrn.grad("X", "Out", "MidOut", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=4)
def lrn_grad(
    xp: Any,
    x: Any,
    out: Any,
    middle: Any,
    d_out: Any,
    *,
    n: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    data_format: str = "AnyLayout",
) -> Any:
    """A channel also counts in the sums of its neighbours."""
    shared = _over_neighbours(xp, d_out * out / middle, n, data_format)
    return d_out * middle ** x.dtype.type(-beta) - x.dtype.type(2 * alpha * beta) * x * shared
