"""``shape``, ``size`` and ``is_empty``: properties of a tensor that do not depend on its values."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, op


def _infer(x: Spec) -> Spec:
    known = x.kind == VarType.LOD_TENSOR and x.rank and all(dim >= 0 for dim in x.shape)
    return Spec((x.rank,), VarType.INT32, numbers=x.shape if known else None)


@op(
    "shape",
    inputs="Input",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample({"Input": r.normal((2, 3, 4))}, expected={"Out": np.array([2, 3, 4])}),
        Sample({"Input": r.normal((5,))}, expected={"Out": np.array([5])}),
        Sample({"Input": r.integers(0, 3, (1, 2))}, expected={"Out": np.array([1, 2])}),
    ],
    makes_numbers=True,
    tells_numbers=True,
    shape_inputs="Input",
    flops=0,
)
def shape(xp: Any, x: Any) -> Any:
    """The dimensions of ``Input`` as an int32 vector. Source: Paddle op ``shape``."""
    return xp.asarray(x.shape, dtype=np.int32)


@op(
    "size",
    inputs="Input",
    infer=lambda x: Spec((1,), VarType.INT64),
    no_grad=True,
    samples=lambda r: [
        Sample({"Input": r.normal((2, 3))}, expected={"Out": np.array([6])}),
        Sample({"Input": r.normal((5,))}, expected={"Out": np.array([5])}),
        Sample({"Input": r.normal((1, 2, 4))}, expected={"Out": np.array([8])}),
    ],
    makes_numbers=True,
    shape_inputs="Input",
)
def size(xp: Any, x: Any) -> Any:
    """The number of elements of ``Input``, of shape (1,). Source: Paddle op ``size``."""
    return xp.full((1,), x.size, np.int64)


@op(
    "is_empty",
    inputs="X",
    infer=lambda x: Spec((1,), VarType.BOOL),
    no_grad=True,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, expected={"Out": np.array([False])}),
        Sample({"X": r.integers(0, 2, (1,))}, expected={"Out": np.array([False])}),
        Sample({"X": np.zeros((0, 3))}, expected={"Out": np.array([True])}),
    ],
)
def is_empty(xp: Any, x: Any) -> Any:
    """Whether ``X`` has no elements, of shape (1,). Source: Paddle op ``is_empty``."""
    return xp.full((1,), x.size == 0)
