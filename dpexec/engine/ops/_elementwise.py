"""Operators on two tensors, element by element, with fluid's broadcasting.

The dimensions of the smaller tensor are aligned with those of the larger one from dimension
``axis`` on (-1: the last dimensions are aligned); a dimension of 1 is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require

ATTRS = {"use_mkldnn": False, "x_data_format": "", "y_data_format": ""}
"""Attributes that Paddle's programs contain and that have no effect."""

Shape = tuple[int, ...]


def padded(small: Sequence[int], rank: int, axis: int) -> Shape | None:
    """``small`` padded to ``rank`` dimensions from ``axis`` on, None if it does not fit."""
    small = tuple(small)
    start = rank - len(small) if axis == -1 else axis
    while small and start + len(small) > rank and small[-1] == 1:
        small = small[:-1]
    if start < 0 or start + len(small) > rank:
        return None
    return (1,) * start + small + (1,) * (rank - start - len(small))


def laid_out(x_shape: Sequence[int], y_shape: Sequence[int], axis: int) -> tuple[Shape, Shape]:
    """Both shapes with the same number of dimensions.

    Raises:
        InvalidOp: the smaller one does not fit at ``axis``.
    """
    x, y = tuple(x_shape), tuple(y_shape)
    if len(x) == len(y):
        return x, y
    big, small = (x, y) if len(x) >= len(y) else (y, x)
    laid = padded(small, len(big), axis)
    require(
        laid is not None,
        f"shapes {list(x)} of X and {list(y)} of Y do not fit together at axis {axis}",
    )
    assert laid is not None
    return (x, laid) if big is x else (laid, y)


def broadcast_shape(x: Spec, y: Spec, axis: int) -> Shape:
    """The shape of the result.

    Raises:
        InvalidOp: two dimensions differ and neither is 1.
    """
    pairs = list(zip(*laid_out(x.shape, y.shape, axis), strict=True))
    require(
        all(a == b or 1 in (a, b) or -1 in (a, b) for a, b in pairs),
        f"X {x} and Y {y} cannot be broadcast together (axis={axis}): dimensions must be equal "
        "or 1",
    )
    return tuple(_joined(a, b) for a, b in pairs)


def _joined(a: int, b: int) -> int:
    """The dimension of the result; it is 0 if one of the two is 0."""
    if -1 in (a, b):
        return -1 if max(a, b) <= 1 else max(a, b)
    return b if a == 1 else a


def infer_elementwise(x: Spec, y: Spec, *, axis: int = -1) -> Spec:
    """The result has the broadcast shape and the common data type."""
    require(axis >= -1, f"axis must be -1 or a dimension of X {x}, but is {axis}")
    require(x.dtype == y.dtype, f"X and Y must have one data type, but they are {x} and {y}")
    return x.replace(shape=broadcast_shape(x, y, axis))


def infer_comparison(x: Spec, y: Spec, *, axis: int = -1) -> Spec:
    """As :func:`infer_elementwise`, with booleans for the result."""
    require(
        y.rank <= max(x.rank, 1), f"Y {y} must not have more dimensions than X {x} in a comparison"
    )
    return infer_elementwise(x, y, axis=axis).replace(dtype=VarType.BOOL)


elementwise = partial(op, inputs="X Y", infer=infer_elementwise, attrs=ATTRS, precision="gray")
"""Declares an elementwise operator from X and Y to Out; decorates its kernel."""

fusing = partial(elementwise, capturable=True, makes_numbers=True, grad_lod="flow", fuses=True)
"""Declares such an operator with a gradient and fusion into larger kernels."""


def aligned(x: Any, y: Any, axis: int) -> tuple[Any, Any]:
    """Views of both arrays whose shapes broadcast by NumPy's rules."""
    if axis == -1 or x.ndim == y.ndim:
        return x, y
    x_shape, y_shape = laid_out(x.shape, y.shape, axis)
    return x.reshape(x_shape), y.reshape(y_shape)


def unbroadcast(xp: Any, grad: Any, like: Any, other: Any, axis: int) -> Any:
    """Sum the gradient of a broadcast result over the repeated dimensions of ``like``.

    Args:
        xp: array module.
        grad: gradient in the shape of the result.
        like: the input that the gradient is for.
        other: the other input.
        axis: as in the forward operator.
    """
    if grad.shape == like.shape:
        return grad
    laid, _ = laid_out(like.shape, other.shape, axis)
    repeated = [i for i, (a, b) in enumerate(zip(laid, grad.shape, strict=True)) if a != b]
    if len(repeated) > 1 and repeated[0] == 0:
        # The batch first: adding whole samples is much faster than summing several axes at once.
        grad = grad.sum(axis=0)
        repeated = [axis - 1 for axis in repeated[1:]]
    return (grad.sum(axis=tuple(repeated)) if repeated else grad).reshape(like.shape)


def samples(
    make: Callable[[SampleRng, Shape], Any], second: Callable[[SampleRng, Shape], Any] | None = None
) -> Callable[[SampleRng], list[Sample]]:
    """Sample calls that cover every way of broadcasting.

    Args:
        make: makes X of a shape.
        second: makes Y; as X by default.
    """
    make_y = second or make

    def call(r: SampleRng) -> list[Sample]:
        cases: list[tuple[Shape, Shape, int]] = [
            ((3, 4), (3, 4), -1),
            ((3, 4), (4,), -1),
            ((2, 3, 4), (3,), 1),
            ((2, 3, 4), (2, 3), 0),
            ((2, 3, 4), (3, 1), 1),
            ((2, 3), (2, 1), 0),
            ((2, 1), (1, 3), -1),
            ((3,), (2, 3), -1),
            ((3, 2), (1,), -1),
        ]
        return [
            Sample({"X": make(r, x), "Y": make_y(r, y)}, {"axis": axis}) for x, y, axis in cases
        ]

    return call


def infer_flow(y: Spec, d_out: Spec, ddx: Spec | None, ddy: Spec | None) -> Spec:
    """The gradient of the result's gradient has the spec of the result's gradient."""
    return d_out


def in_result(xp: Any, values: Any, shape: Shape, axis: int) -> Any:
    """The gradient of an input's gradient, repeated to the shape of the result.

    Args:
        xp: array module.
        values: array of the input's shape; None for zeros.
        shape: shape of the result.
        axis: as in the forward operator.

    Returns:
        A view; the number 0 for zeros.
    """
    if values is None:
        return 0
    laid = padded(values.shape, len(shape), axis) if values.ndim < len(shape) else values.shape
    return xp.broadcast_to(values.reshape(laid), shape)
