"""Rarely used layers on sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import pair
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs

__all__ = ["sequence_topk_avg_pooling", "var_conv_2d"]


def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: Sequence[int], channel_num: int
) -> Variable:
    """Means of the largest numbers in each row of matrices of different sizes.

    Args:
        input: ``(numbers, 1)``; a sequence is ``channel_num`` matrices, with a row for every row
            of the sequence of ``row`` and a column for every row of that of ``col``.
        row: its sequences give the number of rows.
        col: its sequences give the number of columns.
        topks: numbers of largest elements to average, in rising order.
        channel_num: number of matrices.

    Returns:
        ``(rows of row, channel_num * len(topks))`` with the sequences of ``row``. Source: Paddle
        op ``sequence_topk_avg_pooling``.
    """
    helper = LayerHelper("sequence_topk_avg_pooling")
    inputs = {"X": input, "ROW": row, "COLUMN": col}
    dtypes = {"Out": input.dtype, "pos": input.dtype}
    attrs = {"topks": list(topks), "channel_num": channel_num}
    made = add_outputs(helper, inputs, dtypes, attrs)
    made["pos"].stop_gradient = True
    return made["Out"]


def var_conv_2d(
    input: Variable,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    param_attr: Any = None,
    act: str | None = None,
    dtype: str = "float32",
    name: str | None = None,
) -> Variable:
    """A convolution of images of different sizes.

    Args:
        input: ``(numbers, 1)``; a sequence is an image of ``input_channel`` channels, with a row
            for every row of the sequence of ``row`` and a column for every row of that of ``col``.
        row: its sequences give the number of rows.
        col: its sequences give the number of columns.
        input_channel: channels of the images.
        output_channel: channels of the results.
        filter_size: height and width of the window, which is centred at every position.
        stride: vertical and horizontal distance between positions.
        param_attr: attributes of the filters.
        act: name of an activation.
        dtype: element type of the filters.
        name: prefix of names.

    Returns:
        ``(numbers, 1)``; its sequences are images of ``output_channel`` channels. Source: Paddle
        op ``var_conv_2d``.
    """
    if len(input.shape) != 2:
        raise AssertionError(f"input {input.shape} must be (numbers, 1)")
    helper = LayerHelper("var_conv_2d", param_attr=param_attr, act=act, name=name)
    kernel, strides = pair(filter_size, "filter_size"), pair(stride, "stride")
    shape = [output_channel, input_channel * kernel[0] * kernel[1]]
    weight = helper.create_parameter(helper.param_attr, shape, dtype)
    inputs = {"X": input, "ROW": row, "COLUMN": col, "W": weight}
    attrs = {
        "InputChannel": input_channel,
        "OutputChannel": output_channel,
        "StrideH": strides[0],
        "StrideW": strides[1],
        "KernelH": kernel[0],
        "KernelW": kernel[1],
    }
    made = add_outputs(helper, inputs, {"Out": dtype, "Col": dtype}, attrs)
    made["Col"].stop_gradient = True
    return helper.append_activation(made["Out"])
