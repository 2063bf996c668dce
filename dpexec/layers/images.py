"""Convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import (
    FLOATS,
    SINGLE_DOUBLE,
    check_choice,
    check_type,
    check_variable_and_dtype,
    pair,
)
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Normal
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs
from dpexec.layers.windows import (
    IMAGES,
    Filters,
    adaptive_pooling,
    convolution,
    pooling,
    transposed_convolution,
)

__all__ = ["adaptive_pool2d", "conv2d", "conv2d_transpose", "deformable_conv", "maxout", "pool2d"]


def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Convolution of images with trainable filters.

    Args:
        input: ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_format`` says.
        num_filters: channels of the result.
        filter_size: height and width of the filters, or one number for both.
        stride: steps between positions.
        padding: zeros around the image: one number, ``[height, width]``,
            ``[top, bottom, left, right]``, a pair per dimension, ``"SAME"`` or ``"VALID"``.
        dilation: distance between the points of a filter.
        groups: number of independent convolutions that the channels are split into.
        param_attr: attributes of the filters; by default normal with variance
            ``2 / (height * width * C)``, the filter's size times the channels of the input.
        bias_attr: attributes of the bias; False for none.
        use_cudnn: False selects the depthwise operator if it applies; otherwise ignored.
        act: name of an activation.
        name: prefix of names.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Returns:
        ``(N, num_filters, H', W')`` in the same format. Source: Paddle ops ``conv2d``,
        ``depthwise_conv2d``.

    Raises:
        ValueError: arguments do not fit.

    See Also:
        :func:`conv2d_transpose`: larger images.
        :func:`pool2d`: without weights.
        :func:`deformable_conv`: at learned places.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     fluid.layers.conv2d(x, num_filters=8, filter_size=3, padding=1).shape
        (-1, 8, 32, 32)
    """
    check_variable_and_dtype(input, "input", FLOATS, "conv2d")
    filters = Filters(
        "conv2d", IMAGES, data_format, num_filters, filter_size, stride, padding, dilation, groups
    )
    return convolution(
        filters, input, "depthwise_conv2d",
        param_attr=param_attr, bias_attr=bias_attr, use_cudnn=use_cudnn, act=act, name=name,
    )  # fmt: skip


def conv2d_transpose(
    input: Variable,
    num_filters: int,
    output_size: int | Sequence[int] | None = None,
    filter_size: int | Sequence[int] | None = None,
    padding: Any = 0,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Transposed convolution (the gradient of a convolution as a layer), to enlarge images.

    Args:
        input: ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_format`` says.
        num_filters: channels of the result.
        output_size: height and width of the result; with it ``filter_size`` can be left out.
        filter_size: height and width of the filters, or one number for both.
        padding: as for :func:`conv2d`; cut off from the result.
        stride: steps between positions in the result.
        dilation: distance between the points of a filter.
        groups: number of independent convolutions that the channels are split into.
        param_attr: attributes of the filters.
        bias_attr: attributes of the bias; False for none.
        use_cudnn: False selects the depthwise operator if it applies; otherwise ignored.
        act: name of an activation.
        name: prefix of names.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Returns:
        ``(N, num_filters, H', W')`` in the same format. Source: Paddle op ``conv2d_transpose``.

    Raises:
        ValueError: arguments do not fit.

    See Also:
        :func:`conv2d`: smaller or equal images.
        :func:`pool2d`: without weights.
        :func:`deformable_conv`: at learned places.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     fluid.layers.conv2d_transpose(x, num_filters=8, filter_size=2, stride=2).shape
        (-1, 8, 64, 64)
    """
    filters = Filters(
        "conv2d_transpose", IMAGES, data_format, num_filters, filter_size,
        stride, padding, dilation, groups,
    )  # fmt: skip
    return transposed_convolution(
        filters, input, output_size, "depthwise_conv2d_transpose",
        param_attr=param_attr, bias_attr=bias_attr, use_cudnn=use_cudnn, act=act, name=name,
    )  # fmt: skip


def pool2d(
    input: Variable,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: int | Sequence[int] = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Pooling: the maximum or the mean of every window.

    Args:
        input: ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_format`` says.
        pool_size: height and width of the windows, or one number for both.
        pool_type: ``"max"`` or ``"avg"``.
        pool_stride: steps between windows.
        pool_padding: as for :func:`conv2d`.
        global_pooling: one window that covers the image.
        use_cudnn: ignored; accepted for compatibility.
        ceil_mode: round the result's size up, so that the last windows may reach beyond the input.
        name: prefix of names.
        exclusive: exclude the padding from means.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Returns:
        ``(N, C, H', W')`` in the same format. Source: Paddle op ``pool2d``.

    Raises:
        ValueError: arguments do not fit.
        TypeError: ``use_cudnn`` is not a bool.

    See Also:
        :func:`conv2d`: smaller or equal images.
        :func:`conv2d_transpose`: larger images.
        :func:`deformable_conv`: at learned places.
        :func:`adaptive_pool2d`: results of a size.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[[[1.0, 2.0], [3.0, 4.0]]]], "float32"))
        ...     out = fluid.layers.pool2d(x, pool_size=2, pool_stride=2)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[[[4.]]]], dtype=float32)]
    """
    return pooling(
        "pool2d", IMAGES, input, pool_size, pool_type, pool_stride, pool_padding, global_pooling,
        use_cudnn, ceil_mode, name, exclusive, data_format,
    )  # fmt: skip


def adaptive_pool2d(
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Any:
    """Pooling with windows chosen to give a result of a given size.

    Args:
        input: ``(N, C, H, W)``.
        pool_size: height and width of the result, or one number for both.
        pool_type: ``"max"`` or ``"avg"``.
        require_index: also return positions of the maxima, counted row by row through each image.
        name: prefix of names.

    Returns:
        ``(N, C, height, width)``, and int32 positions if required. Source: Paddle ops ``pool2d``,
        ``max_pool2d_with_index``.

    Raises:
        ValueError: positions are required of means, or the pool type is unknown.

    See Also:
        :func:`pool2d`: windows of a size.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[[[1.0, 2.0, 3.0, 4.0]]]], "float32"))
        ...     out = fluid.layers.adaptive_pool2d(x, pool_size=[1, 2], pool_type="avg")
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[[[1.5, 3.5]]]], dtype=float32)]
    """
    return adaptive_pooling(2, input, pool_size, pool_type, require_index, name)


def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """The maximum of every ``groups`` neighbouring channels.

    Args:
        x: ``(N, C, H, W)``, or ``(N, H, W, C)`` with ``axis`` 3 or -1.
        groups: number of channels per maximum; must divide C.
        name: prefix of names.
        axis: axis of the channels.

    Returns:
        C divided by ``groups``. Source: Paddle op ``maxout``; Goodfellow and others, 2013.

    Raises:
        TypeError: ``x`` is no variable of type float32 or float64.
        EnforceNotMet: ``groups`` does not divide the channels, or is below 2.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[[[1.0]], [[4.0]]]], "float32"))
        ...     out = fluid.layers.maxout(x, groups=2)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[[[4.]]]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "maxout")
    check_choice(axis, "axis", (1, -1, 3), "maxout")
    attrs = {"groups": groups, "axis": 3 if axis == -1 else axis}
    return add_op("maxout", {"X": x}, x.dtype, attrs, name=name)


def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    im2col_step: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution of images in which every element of a window has its own offset.

    Args:
        input: float32 or float64 ``(N, C, H, W)``.
        offset: ``(N, deformable_groups * kernel elements * 2, H', W')``: rows and columns to move.
        mask: weights ``(N, deformable_groups * kernel elements, H', W')``, if ``modulated``.
        num_filters: channels of the result.
        filter_size: height and width of the filters, or one number for both.
        stride: steps between positions.
        padding: zeros around the image: one number or ``[height, width]``.
        dilation: distance between the points of a filter.
        groups: number of independent convolutions that the channels are split into.
        deformable_groups: number of groups of channels with separate offsets.
        im2col_step: ignored; the real Paddle computes correct results only with 1.
        param_attr: attributes of the filters; by default normal with variance
            ``2 / (height * width * C)``, the filter's size times the channels of the input.
        bias_attr: attributes of the bias; False for none.
        modulated: whether ``mask`` is used.
        name: prefix of names.

    Returns:
        ``(N, num_filters, H', W')``. Source: Paddle ops ``deformable_conv``,
        ``deformable_conv_v1``; Zhu and others, 2018.

    Raises:
        ValueError: arguments do not fit.

    See Also:
        :func:`conv2d`: smaller or equal images.
        :func:`conv2d_transpose`: larger images.
        :func:`pool2d`: without weights.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 8, 8])
        ...     offset = fluid.layers.conv2d(x, 18, 3, padding=1)
        ...     mask = fluid.layers.conv2d(x, 9, 3, padding=1)
        ...     fluid.layers.deformable_conv(x, offset, mask, 4, filter_size=3, padding=1).shape
        (-1, 4, 8, 8)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "deformable_conv")
    check_variable_and_dtype(offset, "offset", SINGLE_DOUBLE, "deformable_conv")
    check_type(mask, "mask", (Variable, type(None)), "deformable_conv")
    if param_attr is False:
        raise AssertionError("param_attr of deformable_conv cannot be False")
    channels = input.shape[1]
    if groups is not None and channels % groups:
        raise ValueError(
            f"the {channels} channels of {input.name} do not divide by groups={groups}"
        )
    helper = LayerHelper("deformable_conv", param_attr=param_attr, bias_attr=bias_attr, name=name)
    height, width = pair(filter_size, "filter_size")
    filters = helper.create_parameter(
        helper.param_attr,
        [num_filters, channels // (groups or 1), height, width],
        input.dtype,
        default_initializer=Normal(0.0, (2.0 / (height * width * channels)) ** 0.5),
    )
    inputs = {"Input": input, "Filter": filters, "Offset": offset}
    if modulated:
        inputs["Mask"] = mask
    attrs = {
        "strides": pair(stride, "stride"),
        "paddings": pair(padding, "padding"),
        "dilations": pair(dilation, "dilation"),
        "groups": groups,
        "deformable_groups": deformable_groups,
        "im2col_step": im2col_step,
    }
    op_type = "deformable_conv" if modulated else "deformable_conv_v1"
    made = add_outputs(helper, inputs, {"Output": input.dtype}, attrs, op_type=op_type)
    return helper.append_bias_op(made["Output"], 1, 2)
