"""``sgd``: plain gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._optimizers import drawn, like_inputs, scalar

_infer_any = like_inputs("Param LearningRate Grad", "Param")


def _infer(param: Spec, rate: Spec, grad: Spec) -> Any:
    if param.kind == VarType.SELECTED_ROWS:
        require(
            grad.kind == VarType.SELECTED_ROWS,
            f"Param {param} is SelectedRows, so Grad {grad} must be SelectedRows, too",
        )
    return _infer_any(param, rate, grad)


@op(
    "sgd",
    inputs="Param LearningRate Grad",
    outputs="ParamOut",
    infer=_infer,
    inplace={"ParamOut": "Param"},
    sparse=("Param", "Grad"),
    no_grad=True,
    samples=lambda r: [
        Sample(
            {
                "Param": np.array([1.0, 2.0]),
                "LearningRate": np.array([0.5]),
                "Grad": np.array([4.0, -2.0]),
            },
            expected={"ParamOut": np.array([-1.0, 3.0])},
        ),
        drawn(r, "Param LearningRate Grad"),
        drawn(r, "Param LearningRate Grad", sparse=True),
        Sample(
            {
                "Param": SelectedRows(np.array([4, 0, 1]), 6, r.normal((3, 2))),
                "LearningRate": np.array([0.5]),
                "Grad": SelectedRows(np.array([1, 4, 1]), 6, r.normal((3, 2))),
            },
            deviates={
                "ParamOut": (
                    "finds rows of a table only after its sync_index(); dpexec always finds them"
                )
            },
        ),
    ],
    operand_ulps=2,
    capturable=True,
    updates="rows",
    merged_by="fused_sgd",
    flops=per_element("Param", 2),
)
def sgd(xp: Any, param: Any, rate: Any, grad: Any) -> Any:
    """``param -= rate * grad``; for a sparse gradient, only in its rows.

    If the parameter is SelectedRows (a growing table), the gradient must be sparse, too, and the
    parameter must have all its rows. Source: Paddle op ``sgd``.
    """
    if isinstance(param, SelectedRows):
        rows, value = param.positions(grad.row_array, "Grad", xp), grad.value
        SelectedRows(rows, len(param.value), value).add_to(xp, param.value, -scalar(rate))
    elif isinstance(grad, SelectedRows):
        grad.add_to(xp, param, -scalar(rate))
    else:
        param -= scalar(rate) * grad
    return param
