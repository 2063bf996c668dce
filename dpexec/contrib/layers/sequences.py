"""Layers on sequences that few programs need."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper

__all__ = ["sequence_topk_avg_pooling"]


def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: Sequence[int], channel_num: int
) -> Variable:
    """Means of the greatest numbers in every row of matrices that have different sizes.

    Args:
        input: ``(numbers, 1)``; a sequence is ``channel_num`` matrices, with a row for every row
            of the sequence of ``row`` and a column for every row of that of ``col``.
        row: only its sequences count.
        col: only its sequences count.
        topks: of how many of the greatest numbers to take the mean, in rising order.
        channel_num: number of matrices.

    Returns:
        ``(rows of row, channel_num * len(topks))`` with the sequences of ``row``. Source: Paddle
        op ``sequence_topk_avg_pooling``.
    """
    helper = LayerHelper("sequence_topk_avg_pooling")
    out = helper.create_variable_for_type_inference(input.dtype)
    pos = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    helper.append_op(
        type="sequence_topk_avg_pooling",
        inputs={"X": input, "ROW": row, "COLUMN": col},
        outputs={"Out": out, "pos": pos},
        attrs={"topks": list(topks), "channel_num": channel_num},
    )
    return out
