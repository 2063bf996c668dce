"""``reverse`` and ``flip``: elements in the opposite order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_axis

_X = np.arange(1.0, 7.0).reshape(2, 3)


def _check(x: Spec, axes: Sequence[int], attribute: str) -> Spec:
    require(axes, f"{attribute} is empty")
    for axis in axes:
        require_axis(axis, x, attribute=attribute)
    return x


def _flipped(xp: Any, x: Any, axes: Sequence[int]) -> Any:
    """``x`` backwards along the axes; an axis that is named twice counts once, as in Paddle."""
    return xp.flip(x, tuple({axis % x.ndim for axis in axes}))


def _infer_reverse(x: Spec, *, axis: Sequence[int]) -> Spec:
    return _check(x, axis, "axis").replace(lod_level=0)


@op(
    "reverse",
    inputs="X",
    infer=_infer_reverse,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, {"axis": [0]}),
        Sample({"X": r.normal((2, 2, 3))}, {"axis": [0, 2]}),
        Sample({"X": _X}, {"axis": [1]}, expected={"Out": _X[:, ::-1]}),
        Sample({"X": _X}, {"axis": [1, -1, 1]}, expected={"Out": _X[:, ::-1]}),
    ],
    flops=0,
)
def reverse(xp: Any, x: Any, *, axis: Sequence[int]) -> Any:
    """``x`` backwards along ``axis``; a view. Source: Paddle op ``reverse``."""
    return _flipped(xp, x, axis)


def _same_op(context: GradContext) -> list[GradOp]:
    """The gradient is reversed, too."""
    inputs = {"X": context.output_grads["Out"]}
    outputs = {"Out": context.input_grads["X"]}
    return [GradOp(context.op.type, inputs, outputs, context.op.plain_attrs())]


reverse.grad_maker(_same_op)


def _infer_flip(x: Spec, *, dims: Sequence[int]) -> Spec:
    named = [axis % x.rank for axis in dims if x.rank]
    require(len(set(named)) == len(named), f"dims {list(dims)} name a dimension of X {x} twice")
    return _check(x, dims, "dims")


@op(
    "flip",
    inputs="X",
    infer=_infer_flip,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, {"dims": [0]}),
        Sample({"X": r.normal((2, 2, 3))}, {"dims": [1]}),
        Sample({"X": _X}, {"dims": [0, -1]}, expected={"Out": _X[::-1, ::-1]}),
    ],
    grad_lod="flow",
    flops=0,
)
def flip(xp: Any, x: Any, *, dims: Sequence[int]) -> Any:
    """``x`` backwards along ``dims``; a view. Source: Paddle op ``flip``."""
    return _flipped(xp, x, dims)


flip.grad_maker(_same_op)
