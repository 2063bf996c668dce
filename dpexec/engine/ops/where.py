"""``where`` and ``where_index``: choices by a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_same_dtype, same_dims

_CONDITION = np.array([[True, False], [True, True]])


def _infer(condition: Spec, x: Spec, y: Spec) -> Spec:
    require(condition.dtype == VarType.BOOL, f"Condition {condition} must hold bool")
    require_same_dtype(x, y)
    require(
        all(same_dims(spec.shape, x.shape) for spec in (condition, y)),
        f"Condition {condition}, X {x} and Y {y} must have the same shape",
    )
    return x


@op(
    "where",
    inputs="Condition X Y",
    infer=_infer,
    samples=lambda r: [
        Sample({"Condition": _CONDITION, "X": r.normal((2, 2)), "Y": r.normal((2, 2))}),
        Sample({"Condition": _CONDITION[0], "X": r.normal((2,)), "Y": r.normal((2,))}),
        Sample(
            {"Condition": _CONDITION, "X": np.ones((2, 2)), "Y": np.zeros((2, 2))},
            expected={"Out": np.array([[1.0, 0.0], [1.0, 1.0]])},
        ),
    ],
    capturable=True,
)
def where(xp: Any, condition: Any, x: Any, y: Any) -> Any:
    """``x`` where the condition is true, else ``y``. Source: Paddle op ``where``."""
    return xp.where(condition, x, y)


@where.grad("Condition", "X", "Y", "Out@GRAD", outputs="X@GRAD Y@GRAD", dense=True)
def where_grad(
    xp: Any, condition: Any, x: Any, y: Any, d_out: Any, *, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """Every element's gradient goes to the input that it was taken from."""
    return (
        d_out * condition if needs[0] else None,
        d_out * ~condition if needs[1] else None,
    )


@op(
    "where_index",
    inputs="Condition",
    infer=lambda condition: Spec((-1, condition.rank), VarType.INT64),
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"Condition": _CONDITION},
            expected={"Out": np.array([[0, 0], [1, 0], [1, 1]])},
        ),
        Sample({"Condition": np.array([False])}, expected={"Out": np.zeros((0, 1))}),
        Sample({"Condition": r.integers(0, 2, (2, 3, 2)) > 0}),
    ],
)
def where_index(xp: Any, condition: Any) -> Any:
    """The positions of all true elements, one per row. Source: Paddle op ``where_index``."""
    return xp.argwhere(condition).astype(np.int64, copy=False)
