"""``one_hot`` and ``one_hot_v2``: class numbers as unit vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.core.ranges import require_between
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import integer, require_integer


def _infer(
    x: Spec, depth_tensor: Spec | None, *, depth: int = -1, dtype: int = VarType.FP32
) -> Spec:
    require_integer(x, "X")
    width = depth if depth_tensor is None else -1
    require(depth_tensor is not None or depth > 0, f"depth is {depth}, but must be positive")
    return Spec((*x.shape, width), as_var_type(dtype), x.kind, x.lod_level)


def _infer_column(
    x: Spec, depth_tensor: Spec | None, *, depth: int = -1, dtype: int = VarType.FP32
) -> Spec:
    require(x.rank >= 2 and x.shape[-1] in (1, -1), f"the last dimension of X {x} must be 1")
    return _infer(x.replace(shape=x.shape[:-1]), depth_tensor, depth=depth, dtype=dtype)


def _vectors(xp: Any, x: Any, depth: int, dtype: int, allow_out_of_range: bool) -> Any:
    if not allow_out_of_range:
        require_between(xp, x, 0, depth - 1, f"X: expected >= 0 and < {depth}, but got {{}}")
    return (x[..., None] == xp.arange(depth)).astype(to_numpy(dtype))


@op(
    "one_hot_v2",
    inputs="X depth_tensor?",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {"X": np.array([[2, 0]])},
            {"depth": 3},
            expected={"Out": np.array([[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]])},
        ),
        Sample({"X": np.array([5])}, {"depth": 3, "allow_out_of_range": True}),
        Sample({"X": r.integers(0, 4, (3,)), "depth_tensor": np.array([4], np.int32)}),
    ],
    host_inputs="depth_tensor",
    flops=0,
)
def one_hot_v2(
    xp: Any,
    x: Any,
    depth_tensor: Any,
    *,
    depth: int = -1,
    dtype: int = VarType.FP32,
    allow_out_of_range: bool = False,
) -> Any:
    """A new last dimension of ``depth`` with a one at the class and zeros elsewhere.

    Source: Paddle op ``one_hot_v2``.

    Raises:
        ValueError: a class is out of range.
    """
    return _vectors(xp, x, integer(depth, depth_tensor), dtype, allow_out_of_range)


@op(
    "one_hot",
    inputs="X depth_tensor?",
    infer=_infer_column,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": np.array([[1], [0]])}, {"depth": 2}, expected={"Out": np.eye(2)[::-1]}),
        Sample({"X": np.array([[5], [1]])}, {"depth": 3, "allow_out_of_range": True}),
        Sample({"X": r.integers(0, 4, (3, 1)), "depth_tensor": np.array([4], np.int32)}),
    ],
    host_inputs="depth_tensor",
    flops=0,
)
def one_hot(
    xp: Any,
    x: Any,
    depth_tensor: Any,
    *,
    depth: int = -1,
    dtype: int = VarType.FP32,
    allow_out_of_range: bool = False,
) -> Any:
    """As ``one_hot_v2``, in place of a last dimension of 1. Source: Paddle op ``one_hot``.

    Raises:
        ValueError: a class is out of range.
    """
    depth = integer(depth, depth_tensor)
    return _vectors(xp, x[..., 0], depth, dtype, allow_out_of_range)
