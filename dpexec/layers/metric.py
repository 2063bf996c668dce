"""Measures of quality."""

from __future__ import annotations

from dpexec.checks import FLOATS, check_variable_and_dtype
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.indexing import topk

__all__ = ["accuracy"]


def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
) -> Variable:
    """The share of samples whose label is among the ``k`` highest scores.

    Args:
        input: scores ``(N, classes)``.
        label: class numbers, int64 ``(N, 1)``.
        k: how many of the highest scores count.
        correct: variable that takes the number of correct samples.
        total: variable that takes the number of samples.

    Returns:
        float32 ``(1,)``. Source: Paddle op ``accuracy``.
    """
    check_variable_and_dtype(input, "input", FLOATS, "accuracy")
    helper = LayerHelper("accuracy")
    values, indices = topk(input, k=k)
    out = helper.create_variable_for_type_inference("float32")
    if correct is None:
        correct = helper.create_variable_for_type_inference("int32")
    if total is None:
        total = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="accuracy",
        inputs={"Out": values, "Indices": indices, "Label": label},
        outputs={"Accuracy": out, "Correct": correct, "Total": total},
    )
    return out
