"""``dot``, ``cross`` and ``conv_shift``: products of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import require_axis, require_same_dtype, require_same_shape


def _infer_dot(x: Spec, y: Spec) -> Spec:
    require_same_dtype(x, y)
    require(x.rank in (1, 2), f"X {x} must be a vector or a batch of them")
    require_same_shape(x, y)
    return x.replace(shape=(*x.shape[:-1], 1), lod_level=0)


@op(
    "dot",
    inputs="X Y",
    infer=_infer_dot,
    samples=lambda r: [
        Sample({"X": r.normal((5,)), "Y": r.normal((5,))}),
        Sample({"X": r.normal((3, 4)), "Y": r.normal((3, 4))}),
        Sample({"X": r.normal((3, 1)), "Y": r.normal((3, 1))}),
        Sample({"X": np.array([1, 2]), "Y": np.array([3, 4])}, expected={"Out": np.array([11])}),
    ],
    operand_ulps=1,
    capturable=True,
    grad_lod="own",
    macs=per_element("X", 1),
)
def dot(xp: Any, x: Any, y: Any) -> Any:
    """``sum(x * y)`` over the last dimension, which becomes 1. Source: Paddle op ``dot``."""
    return (x * y).sum(axis=-1, keepdims=True, dtype=x.dtype)


@dot.grad("X", "Y", "Out@GRAD", operand_ulps=1)
def dot_grad(xp: Any, x: Any, y: Any, d_out: Any, *, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    """The other vector times the gradient."""
    return y * d_out if needs[0] else None, x * d_out if needs[1] else None


FIRST_OF_THREE = 9
"""The default of ``dim``, beyond all axes: take the first one with 3 elements."""


def _infer_cross(x: Spec, y: Spec, *, dim: int = FIRST_OF_THREE) -> Spec:
    require_same_dtype(x, y)
    require_same_shape(x, y)
    if dim != FIRST_OF_THREE:
        axis = require_axis(dim, x, attribute="dim")
        require(dims_match(x.shape[axis], 3), f"dimension {dim} of X {x} must be 3")
    else:
        require(3 in x.shape or -1 in x.shape, f"no dimension of X {x} is 3")
    return x


def _cross_axis(shape: tuple[int, ...], dim: int) -> int:
    return shape.index(3) if dim == FIRST_OF_THREE else dim


@op(
    "cross",
    inputs="X Y",
    infer=_infer_cross,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3)), "Y": r.normal((2, 3))}),
        Sample({"X": r.normal((3, 3)), "Y": r.normal((3, 3))}, {"dim": -1}),
        Sample({"X": r.normal((3, 2, 3)), "Y": r.normal((3, 2, 3))}, {"dim": 0}),
        Sample({"X": r.normal((2, 3, 4)), "Y": r.normal((2, 3, 4))}),
        Sample(
            {"X": np.array([1, 0, 0]), "Y": np.array([0, 1, 0])},
            expected={"Out": np.array([0, 0, 1])},
        ),
    ],
    operand_ulps=2,
)
def cross(xp: Any, x: Any, y: Any, *, dim: int = FIRST_OF_THREE) -> Any:
    """The cross product along ``dim``, by default the first dimension of 3.

    Source: Paddle op ``cross``.
    """
    return _cross(xp, x, y, _cross_axis(x.shape, dim))


def _cross(xp: Any, x: Any, y: Any, axis: int) -> Any:
    a, b = xp.moveaxis(x, axis, 0), xp.moveaxis(y, axis, 0)
    parts = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in (0, 1, 2)]
    return xp.stack(parts, axis=axis)


@cross.grad("X", "Y", "Out@GRAD", dense=True, operand_ulps=2)
def cross_grad(
    xp: Any,
    x: Any,
    y: Any,
    d_out: Any,
    *,
    dim: int = FIRST_OF_THREE,
    needs: tuple[bool, bool],
) -> tuple[Any, Any]:
    """``y`` cross ``d_out`` and ``d_out`` cross ``x``."""
    axis = _cross_axis(x.shape, dim)
    return (
        _cross(xp, y, d_out, axis) if needs[0] else None,
        _cross(xp, d_out, x, axis) if needs[1] else None,
    )


def _infer_conv_shift(x: Spec, y: Spec) -> Spec:
    require_same_dtype(x, y)
    require(x.rank == y.rank == 2, f"X {x} and Y {y} must be matrices")
    require(dims_match(x.shape[0], y.shape[0]), f"X {x} and Y {y} must have equally many rows")
    width = y.shape[1]
    require(width < 0 or width % 2 == 1, f"Y {y} must have an odd width")
    require(width < 0 or x.shape[1] < 0 or width <= x.shape[1], f"Y {y} is wider than X {x}")
    return x


def _windows(xp: Any, width: int, reach: int) -> Any:
    """Columns of X that each column of the result meets, ``(width, reach)``."""
    return (xp.arange(width)[:, None] + xp.arange(reach)[None] - reach // 2) % width


@op(
    "conv_shift",
    inputs="X Y",
    infer=_infer_conv_shift,
    samples=lambda r: [
        Sample({"X": r.normal((2, 5)), "Y": r.normal((2, 3))}),
        Sample({"X": r.normal((3, 3)), "Y": r.normal((3, 3))}),
        Sample({"X": r.normal((1, 4)), "Y": r.normal((1, 1))}),
    ],
    operand_ulps=2,
)
def conv_shift(xp: Any, x: Any, y: Any) -> Any:
    """The circular correlation of each row: ``out[i] = sum(x[i + j - width // 2] * y[j])``.

    Source: Paddle op ``conv_shift``; Graves, Wayne, Danihelka, 2014.
    """
    meets = x[:, _windows(xp, x.shape[1], y.shape[1])]
    return xp.matmul(meets, y[:, :, None])[:, :, 0]


@conv_shift.grad("X", "Y", "Out@GRAD", dense=True, operand_ulps=2)
def conv_shift_grad(
    xp: Any, x: Any, y: Any, d_out: Any, *, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The correlation of ``d_out`` with ``x``; for ``x`` its transpose, a circular convolution."""
    width, reach = x.shape[1], y.shape[1]
    d_x = d_y = None
    if needs[0]:
        came_from = (xp.arange(width)[:, None] - xp.arange(reach)[None] + reach // 2) % width
        d_x = xp.matmul(d_out[:, came_from], y[:, :, None])[:, :, 0]
    if needs[1]:
        d_y = xp.matmul(d_out[:, None], x[:, _windows(xp, width, reach)])[:, 0]
    return d_x, d_y
