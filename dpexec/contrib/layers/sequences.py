"""Rarely used layers on sequences: matching texts, images of different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import pair
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs

__all__ = ["match_matrix_tensor", "sequence_topk_avg_pooling", "var_conv_2d"]


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

    Raises:
        TypeError: an argument is no variable.
        EnforceNotMet: the lengths of ``row`` and ``col`` do not fit ``input``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     row, col = (fluid.data(name, [None, 1], lod_level=1) for name in ("row", "col"))
        ...     out = fluid.contrib.layers.sequence_topk_avg_pooling(x, row, col, [1, 2], 1)
        ...     def fed(rows, count):
        ...         numbers = np.array(rows, "float32").reshape(-1, 1)
        ...         return fluid.create_lod_tensor(numbers, [[count]], fluid.CPUPlace())
        ...     feed = {"x": fed([1, 5, 3, 8, 2, 4], 6)}  # two rows, three columns
        ...     feed |= {"row": fed([0, 0], 2), "col": fed([0, 0, 0], 3)}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        >>> np.array(found).tolist()  # of each row: the largest, and the mean of the two largest
        [[5.0, 4.0], [8.0, 6.0]]
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

    Raises:
        AssertionError: ``input`` does not have two dimensions.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     images = fluid.data("images", [None, 1], lod_level=1)
        ...     names = "rows", "columns"
        ...     rows, columns = (fluid.data(name, [None, 8], lod_level=1) for name in names)
        ...     out = fluid.contrib.layers.var_conv_2d(images, rows, columns, 3, 5, filter_size=3)
        ...     print(out.shape)  # the sequences of rows and columns tell each image's size
        (-1, 1)
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


def match_matrix_tensor(
    x: Variable,
    y: Variable,
    channel_num: int,
    act: str | None = None,
    param_attr: Any = None,
    dtype: str = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Similarity matrices between the words of two texts, one per channel.

    Args:
        x: words, ``(rows, width)`` with sequences.
        y: words, ``(rows, width)`` with the same number of sequences.
        channel_num: number of matrices per pair of texts.
        act: name of an activation.
        param_attr: attributes of the weight ``(width, channel_num, width)``.
        dtype: element type of the weight.
        name: prefix of names.

    Returns:
        A column whose sequences hold ``channel_num`` matrices each, as for
        ``sequence_topk_avg_pooling``; and the products of ``x`` and the weight. Source: Paddle op
        ``match_matrix_tensor``.

    Raises:
        ValueError: ``x`` and ``y`` do not have the same width.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     question = fluid.data("question", [None, 8], lod_level=1)
        ...     answer = fluid.data("answer", [None, 8], lod_level=1)
        ...     layers = fluid.contrib.layers
        ...     match, _ = layers.match_matrix_tensor(question, answer, channel_num=3)
        ...     best = layers.sequence_topk_avg_pooling(match, question, answer, [1, 4], 3)
        ...     print(match.shape, best.shape)
        (-1, 1) (-1, 6)
    """
    if len(x.shape) != 2 or len(y.shape) != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"x {x.shape} and y {y.shape} must be (rows, width) of the same width")
    helper = LayerHelper("match_matrix_tensor", name=name, act=act, param_attr=param_attr)
    shape = [x.shape[1], channel_num, y.shape[1]]
    weight = helper.create_parameter(helper.param_attr, shape, dtype)
    inputs, dtypes = {"X": x, "Y": y, "W": weight}, {"Out": dtype, "Tmp": dtype}
    made = add_outputs(helper, inputs, dtypes, {"dim_t": channel_num})
    made["Tmp"].stop_gradient = True
    return helper.append_activation(made["Out"]), made["Tmp"]
