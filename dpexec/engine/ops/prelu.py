"""``prelu`` and ``maxout``: activations that learn or choose."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._edges import EXTREMA, spoiled
from dpexec.engine.ops._shapes import require_axis, require_float, require_same_dtype


def _slope_shape(shape: tuple[int, ...], mode: str) -> tuple[int, ...]:
    """The shape of Alpha that broadcasts against X."""
    rank = len(shape)
    if mode == "all":
        return (1,) * rank
    if mode == "channel":
        return (1, shape[1], *(1,) * (rank - 2))
    return (1, *shape[1:])


def _infer(x: Spec, alpha: Spec, *, mode: str = "all") -> Spec:
    require_float(x)
    require(mode in ("all", "channel", "element"), f"mode is {mode}, not all, channel or element")
    require(x.rank >= (1 if mode == "all" else 2), f"X {x} has no dimension of channels")
    require_same_dtype(x, alpha, "X and Alpha")
    size = Spec(_slope_shape(x.shape, mode)).size
    require(
        size < 0 or alpha.size in (size, -1),
        f"Alpha {alpha} must have {size} elements for X {x} in mode {mode}",
    )
    return x


def _prelu_samples(r: SampleRng) -> list[Sample]:
    x = r.away_from(0.0, (3, 2, 4))
    return [
        Sample({"X": x, "Alpha": r.normal((1,))}, {"mode": "all"}),
        Sample({"X": x, "Alpha": r.normal((2,))}, {"mode": "channel"}),
        Sample({"X": x, "Alpha": r.normal((1, 2, 4))}, {"mode": "element"}),
        Sample(
            {"X": np.array([[-2.0, 4.0]]), "Alpha": np.array([0.5])},
            expected={"Out": np.array([[-1.0, 4.0]])},
        ),
    ]


@op(
    "prelu",
    inputs="X Alpha",
    infer=_infer,
    samples=_prelu_samples,
    operand_ulps=1,
    quantized="outputs",
    flops=per_element("Out", 1),
)
def prelu(xp: Any, x: Any, alpha: Any, *, mode: str = "all") -> Any:
    """``x`` where it is positive, else ``Alpha * x``.

    ``Alpha`` has one number for all, for each channel (dimension 1), or for each element of a
    sample. Source: He et al., 2015; Paddle op ``prelu``.
    """
    return xp.where(x > 0, x, x * alpha.reshape(_slope_shape(x.shape, mode)))


@prelu.grad("X", "Alpha", "Out@GRAD", dense=True, operand_ulps=2)
def prelu_grad(
    xp: Any, x: Any, alpha: Any, d_out: Any, *, mode: str = "all", needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The slope times the gradient for X; ``x`` times it where ``x`` is negative for Alpha."""
    shape = _slope_shape(x.shape, mode)
    d_x = d_alpha = None
    if needs[0]:
        d_x = xp.where(x > 0, d_out, d_out * alpha.reshape(shape))
    if needs[1]:
        repeated = tuple(axis for axis, size in enumerate(shape) if size == 1)
        d_alpha = (d_out * xp.minimum(x, 0)).sum(axis=repeated).reshape(alpha.shape)
    return d_x, d_alpha


def _infer_maxout(x: Spec, *, groups: int, axis: int = 1) -> Spec:
    require_float(x)
    at = require_axis(axis, x)
    channels = x.shape[at]
    require(
        groups > 1 and (channels < 0 or channels % groups == 0),
        f"groups is {groups}, but must be 2 or more and divide dimension {axis} of X {x}",
    )
    left = channels if channels < 0 else channels // groups
    return x.replace(shape=(*x.shape[:at], left, *x.shape[at + 1 :]), lod_level=0)


def _grouped(x: Any, groups: int, axis: int) -> tuple[Any, int]:
    """A view with a dimension for the members of a group, and its number."""
    at = axis % x.ndim
    shape = (*x.shape[:at], x.shape[at] // groups, groups, *x.shape[at + 1 :])
    return x.reshape(shape), at + 1


@op(
    "maxout",
    inputs="X",
    infer=_infer_maxout,
    samples=lambda r: [
        Sample({"X": r.distinct((2, 4, 2, 3))}, {"groups": 2}),
        Sample(
            {"X": r.distinct((2, 3, 2, 6))},
            {"groups": 3, "axis": -1},
            deviates={
                "*": "writes beyond its memory if axis is -1; dpexec counts axis from the end"
            },
        ),
        Sample({"X": r.distinct((2, 2, 2, 6))}, {"groups": 3, "axis": 3}),
        Sample(
            {"X": np.array([1.0, 3.0, 3.0, 2.0]).reshape(1, 4, 1, 1)},
            {"groups": 2},
            expected={"Out": np.array([3.0, 3.0]).reshape(1, 2, 1, 1)},
        ),
        spoiled(
            Sample({"X": r.distinct((2, 4, 2, 3))}, {"groups": 2}),
            "X",
            np.nan,
            "Out X@GRAD",
            EXTREMA,
        ),
    ],
    operand_ulps=1,
)
def maxout(xp: Any, x: Any, *, groups: int, axis: int = 1) -> Any:
    """The largest of every ``groups`` neighbouring channels.

    Source: Goodfellow et al., 2013; Paddle op ``maxout``.
    """
    grouped, members = _grouped(x, groups, axis)
    return grouped.max(axis=members)


@maxout.grad("X", "Out", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=1)
def maxout_grad(xp: Any, x: Any, out: Any, d_out: Any, *, groups: int = 1, axis: int = 1) -> Any:
    """The gradient goes to the first of the largest channels of each group."""
    grouped, members = _grouped(x, groups, axis)
    first = xp.expand_dims(xp.argmax(grouped, axis=members), members)
    place = xp.arange(groups).reshape((groups,) + (1,) * (grouped.ndim - members - 1))
    return ((place == first) * xp.expand_dims(d_out, members)).reshape(x.shape)
