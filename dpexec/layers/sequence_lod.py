"""Layers on sequences of different lengths, stored one after another in a tensor (LoD)."""

from __future__ import annotations

from typing import Any

from dpexec.checks import (
    INTEGERS,
    NO_HALF,
    SINGLE_DOUBLE,
    check_variable_and_dtype,
)
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__ = [
    "sequence_conv",
    "sequence_enumerate",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_pad",
    "sequence_pool",
    "sequence_scatter",
    "sequence_softmax",
    "sequence_unpad",
]


def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """A convolution along every sequence: windows of rows times a weight.

    Args:
        input: float32 or float64 ``(rows, width)`` with sequences.
        num_filters: width of the result.
        filter_size: number of rows per window.
        filter_stride: only 1.
        padding: ignored, as in fluid; sequences keep their lengths.
        padding_start: first row of the window relative to the current row; by default half of the
            window lies before it. Rows beyond the ends of a sequence are 0.
        bias_attr: attributes of the bias; False for none.
        param_attr: attributes of the weight ``(filter_size * width, num_filters)``.
        act: name of an activation.
        name: prefix of names.

    Returns:
        ``(rows, num_filters)`` with the same sequences. Source: Paddle op ``sequence_conv``.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64.
        EnforceNotMet: ``input`` is no matrix with sequences, or ``filter_stride`` is not 1.

    See Also:
        :func:`sequence_pool`: one row for each sequence.
        :func:`sequence_first_step`: the first row.
        :func:`sequence_last_step`: the last row.
        :func:`sequence_softmax`: normalises within sequences.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     words = fluid.data("words", [None, 8], lod_level=1)
        ...     fluid.layers.sequence_conv(words, num_filters=4).shape
        (-1, 4)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "sequence_conv")
    helper = LayerHelper(
        "sequence_conv", name=name, param_attr=param_attr, bias_attr=bias_attr, act=act
    )
    shape = [filter_size * input.shape[1], num_filters]
    weight = helper.create_parameter(helper.param_attr, shape, input.dtype)
    attrs = {
        "contextStride": filter_stride,
        "contextStart": -int(filter_size // 2) if padding_start is None else padding_start,
        "contextLength": filter_size,
    }
    made = add_outputs(helper, {"X": input, "Filter": weight}, {"Out": input.dtype}, attrs)
    return helper.append_activation(helper.append_bias_op(made["Out"]))


def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Softmax over every sequence.

    Args:
        input: float32 or float64 ``(rows, 1)`` or ``(rows,)`` with sequences.
        use_cudnn: ignored; accepted for compatibility.
        name: prefix of names.

    Returns:
        The same shape and sequences. Source: Paddle op ``sequence_softmax``.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64.
        EnforceNotMet: ``input`` has more than one number per row.

    See Also:
        :func:`sequence_pool`: one row for each sequence.
        :func:`sequence_first_step`: the first row.
        :func:`sequence_last_step`: the last row.
        :func:`sequence_conv`: windows of rows.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     fluid.layers.sequence_softmax(x).lod_level
        1
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "sequence_softmax")
    attrs = {"use_cudnn": use_cudnn}
    return add_op("sequence_softmax", {"X": input}, input.dtype, attrs, name=name)


def sequence_pool(
    input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0
) -> Variable:
    """Pool every sequence of the finest level to one row.

    Args:
        input: float32 or float64 ``(rows, ...)`` with one or two levels of sequences.
        pool_type: ``average``, ``sum``, ``sqrt`` (the sum divided by the root of the length),
            ``max``, ``last`` or ``first``.
        is_test: with ``max``: keep no indices for gradients.
        pad_value: value of the result's elements for empty sequences.

    Returns:
        ``(sequences, ...)``, with one level fewer. Source: Paddle op ``sequence_pool``.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64.
        EnforceNotMet: ``pool_type`` is unknown.

    See Also:
        :func:`sequence_first_step`: the first row.
        :func:`sequence_last_step`: the last row.
        :func:`sequence_softmax`: normalises within sequences.
        :func:`sequence_conv`: windows of rows.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     words = fluid.data("words", [None, 8], lod_level=1)
        ...     fluid.layers.sequence_pool(words, "max").shape
        (-1, 8)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "sequence_pool")
    dtypes = {"Out": input.dtype, "MaxIndex": input.dtype}
    attrs = {"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value}
    made = add_outputs(LayerHelper("sequence_pool"), {"X": input}, dtypes, attrs)
    if pool_type == "max":
        made["MaxIndex"].stop_gradient = True
    return made["Out"]


def sequence_first_step(input: Variable) -> Variable:
    """The first row of every sequence.

    Args:
        input: float32 or float64 ``(rows, ...)`` with one or two levels of sequences.

    Returns:
        ``(sequences, ...)``, with one level fewer.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64.

    See Also:
        :func:`sequence_pool`: one row for each sequence.
        :func:`sequence_last_step`: the last row.
        :func:`sequence_softmax`: normalises within sequences.
        :func:`sequence_conv`: windows of rows.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8], lod_level=1)
        ...     fluid.layers.sequence_first_step(x).shape
        (-1, 8)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "sequence_first_step")
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Variable:
    """The last row of every sequence.

    Args:
        input: float32 or float64 ``(rows, ...)`` with one or two levels of sequences.

    Returns:
        ``(sequences, ...)``, with one level fewer.

    Raises:
        TypeError: ``input`` is no variable of type float32 or float64.

    See Also:
        :func:`sequence_pool`: one row for each sequence.
        :func:`sequence_first_step`: the first row.
        :func:`sequence_softmax`: normalises within sequences.
        :func:`sequence_conv`: windows of rows.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8], lod_level=1)
        ...     fluid.layers.sequence_last_step(x).shape
        (-1, 8)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "sequence_last_step")
    return sequence_pool(input, "last")


def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Pad sequences to one length and stack them to a dense tensor.

    Args:
        x: ``(rows, ...)`` with sequences.
        pad_value: value appended to shorter sequences: one number, or a row.
        maxlen: length to pad to; by default that of the longest sequence.
        name: prefix of names.

    Returns:
        ``(sequences, maxlen, ...)``, and the original lengths, int64 ``(sequences,)``. Source:
        Paddle op ``sequence_pad``.

    Raises:
        TypeError: ``x`` or ``pad_value`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: ``pad_value`` is neither one number nor like a row of ``x``, or has another
            type.

    See Also:
        :func:`pad`: any axes.
        :func:`pad2d`: images.
        :func:`pad_constant_like`: to the shape of another variable.
        :func:`sequence_unpad`: back to sequences.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], lod_level=1)
        ...     zero = fluid.layers.fill_constant([1], "float32", 0.0)
        ...     padded, lengths = fluid.layers.sequence_pad(x, pad_value=zero)
        ...     rows = np.array([[1], [2], [3]], "float32")
        ...     feed = {"x": fluid.create_lod_tensor(rows, [[2, 1]], fluid.CPUPlace())}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     found = exe.run(feed=feed, fetch_list=[padded, lengths])
        >>> found[0].tolist(), found[1].tolist()
        ([[[1.0], [2.0]], [[3.0], [0.0]]], [2, 1])
    """
    helper = LayerHelper("sequence_pad", name=name)
    check_variable_and_dtype(x, "x", NO_HALF, "sequence_pad")
    check_variable_and_dtype(pad_value, "pad_value", NO_HALF, "sequence_pad")
    inputs, dtypes = {"X": x, "PadValue": pad_value}, {"Out": x.dtype, "Length": "int64"}
    attrs = {"padded_length": -1 if maxlen is None else maxlen}
    made = add_outputs(helper, inputs, dtypes, attrs)
    pad_value.stop_gradient = made["Length"].stop_gradient = True
    return made["Out"], made["Length"]


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """Convert a padded dense tensor to sequences without padding.

    Args:
        x: ``(sequences, maxlen, ...)``.
        length: length of each sequence, int64 ``(sequences,)``.
        name: prefix of names.

    Returns:
        ``(rows, ...)`` with one level of sequences. Source: Paddle op ``sequence_unpad``.

    Raises:
        TypeError: ``x`` is no variable of type float32, float64, int32 or int64; ``length`` is no
            variable of type int64.
        EnforceNotMet: ``x`` has one dimension only, or ``length`` not a number for each of its
            rows.

    See Also:
        :func:`sequence_pad`: to rows of equal length.
        :func:`sequence_mask`: which rows are real.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1, 2], [3, 0]], "float32"))
        ...     lengths = fluid.layers.assign(np.array([2, 1], "int64"))
        ...     out = fluid.layers.sequence_unpad(x, lengths)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(fetch_list=[out], return_numpy=False)
        >>> np.array(found).tolist(), found.recursive_sequence_lengths()
        ([[1.0], [2.0], [3.0]], [[2, 1]])
    """
    check_variable_and_dtype(x, "x", NO_HALF, "sequence_unpad")
    check_variable_and_dtype(length, "length", ("int64",), "sequence_unpad")
    length.stop_gradient = True
    return add_op("sequence_unpad", {"X": x, "Length": length}, x.dtype, name=name)


def sequence_scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """Add a sequence of updates to every row of a dense tensor.

    Args:
        input: ``(sequences, ...)``.
        index: columns to add to (indices into the flattened row): int32 or int64 ``(rows, 1)`` with
            one level of sequences.
        updates: values to add, ``(rows, 1)`` with the same sequences.
        name: prefix of names.

    Returns:
        Like ``input``. Source: Paddle op ``sequence_scatter``.

    Raises:
        TypeError: ``input`` or ``updates`` is no variable of type float32, float64, int32 or int64;
            ``index`` is no variable of type int32 or int64.
        EnforceNotMet: ``index`` and ``updates`` have different shapes, or ``updates`` another type
            than ``input``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.ones((2, 3), "float32"))
        ...     index = fluid.data("index", [None, 1], "int64", lod_level=1)
        ...     updates = fluid.data("updates", [None, 1], lod_level=1)
        ...     out = fluid.layers.sequence_scatter(x, index, updates)
        ...     place, lengths = fluid.CPUPlace(), [[2, 1]]  # two updates of row 0, one of row 1
        ...     columns, values = np.array([[0], [2], [1]]), np.array([[5], [6], [7]], "float32")
        ...     feed = {
        ...         "index": fluid.create_lod_tensor(columns, lengths, place),
        ...         "updates": fluid.create_lod_tensor(values, lengths, place),
        ...     }
        ...     fluid.Executor(place).run(feed=feed, fetch_list=[out])
        [array([[6., 1., 7.],
               [1., 8., 1.]], dtype=float32)]
    """
    check_variable_and_dtype(input, "input", NO_HALF, "sequence_scatter")
    check_variable_and_dtype(index, "index", INTEGERS, "sequence_scatter")
    check_variable_and_dtype(updates, "updates", NO_HALF, "sequence_scatter")
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return add_op("sequence_scatter", inputs, input.dtype, name=name)


def sequence_enumerate(
    input: Variable, win_size: int, pad_value: int = 0, name: str | None = None
) -> Variable:
    """For every number, a window of it and the following numbers of its sequence.

    Args:
        input: int32 or int64 ``(rows, 1)`` with sequences.
        win_size: number of elements per window.
        pad_value: value beyond the end of the sequence.
        name: prefix of names.

    Returns:
        ``(rows, win_size)`` with the same sequences; gradients stop here. Source: Paddle op
        ``sequence_enumerate``.

    Raises:
        TypeError: ``input`` is no variable of type int32 or int64.
        EnforceNotMet: ``win_size`` is below 2.

    See Also:
        :func:`sequence_concat`: sequence by sequence.
        :func:`sequence_slice`: a part of each.
        :func:`sequence_reverse`: backwards.
        :func:`sequence_reshape`: other row lengths.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 1], "int64", lod_level=1)
        ...     out = fluid.layers.sequence_enumerate(x, win_size=2, pad_value=0)
        ...     rows = np.array([[1], [2], [3]], "int64")
        ...     rows = fluid.create_lod_tensor(rows, [[2, 1]], fluid.CPUPlace())
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed={"x": rows}, fetch_list=[out], return_numpy=False)
        >>> np.array(found).tolist()
        [[1, 2], [2, 0], [3, 0]]
    """
    check_variable_and_dtype(input, "input", INTEGERS, "sequence_enumerate")
    attrs = {"win_size": win_size, "pad_value": pad_value}
    return add_op(
        "sequence_enumerate", {"X": input}, input.dtype, attrs, name=name, stop_gradient=True
    )
