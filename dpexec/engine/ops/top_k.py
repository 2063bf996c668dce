"""``top_k``: the largest elements of each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import integer, require_float


def _infer(x: Spec, wanted: Spec | None, *, k: int = 1) -> tuple[Spec, Spec]:
    require_float(x)
    require(x.rank >= 1, f"X {x} needs at least one axis")
    count = k if wanted is None else -1
    if wanted is None:
        require(k >= 1, f"k is {k}, but must be at least 1")
        require(x.shape[-1] < 0 or k <= x.shape[-1], f"k is {k}, but X {x} has rows of fewer")
    shape = (*x.shape[:-1], count)
    out = x.replace(shape=shape)
    return out, out.replace(dtype=VarType.INT64)


@op(
    "top_k",
    inputs="X K?",
    outputs="Out Indices",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.distinct((3, 5))}, {"k": 2}),
        Sample(
            {"X": np.array([[1.0, 3.0, 3.0, 2.0]])},
            {"k": 3},
            smooth=False,
            expected={"Out": np.array([[3.0, 3.0, 2.0]]), "Indices": np.array([[1, 2, 3]])},
            deviates=dict.fromkeys(
                ("Indices", "X@GRAD"),
                ("puts equal elements into any order; dpexec keeps their order in X"),
            ),
        ),
        Sample({"X": r.distinct((2, 4)), "K": np.array([2], np.int32)}, grad=()),
        Sample({"X": r.distinct((2, 2, 3))}, {"k": 3}),
    ],
    host_inputs="K",
    precision="gray",
)
def top_k(xp: Any, x: Any, wanted: Any, *, k: int = 1) -> Any:
    """The ``k`` largest elements along the last axis, descending; of equal ones, the first.

    Source: Paddle op ``top_k``.
    """
    count, columns = integer(k, wanted), x.shape[-1]
    require(0 <= count <= columns, f"K is {count}, but X has rows of {columns}")
    if count == 1:
        indices = xp.argmax(x, axis=-1)[..., None]
    else:
        indices = xp.argsort(-x, axis=-1, kind="stable")[..., :count]
    return xp.take_along_axis(x, indices, axis=-1), indices.astype(np.int64)


@top_k.grad("X", "Indices", "Out@GRAD", outputs="X@GRAD", dense=True)
def top_k_grad(xp: Any, x: Any, indices: Any, d_out: Any) -> Any:
    """The gradient goes to the elements that were chosen."""
    d_x = xp.zeros_like(x)
    xp.put_along_axis(d_x, indices, d_out, axis=-1)
    return d_x
