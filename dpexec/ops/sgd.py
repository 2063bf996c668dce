"""``sgd``: plain gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.core.selected_rows import SelectedRows
from dpexec.ir.opdef import Sample, op
from dpexec.ops._optimizers import drawn, like_inputs, scalar


@op(
    "sgd",
    inputs="Param LearningRate Grad",
    outputs="ParamOut",
    infer=like_inputs("Param LearningRate Grad", "Param"),
    inplace={"ParamOut": "Param"},
    sparse=("Grad",),
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
    ],
)
def sgd(xp: Any, param: Any, rate: Any, grad: Any) -> Any:
    """``param -= rate * grad``; of a sparse gradient, only its rows. Source: Paddle op ``sgd``."""
    if isinstance(grad, SelectedRows):
        grad.add_to(xp, param, -scalar(rate))
    else:
        param -= scalar(rate) * grad
    return param
