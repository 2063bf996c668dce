"""Convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import FLOATS, check_choice, check_type, check_variable_and_dtype, pair
from dpexec.initializer import Normal
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op

__all__ = ["adaptive_pool2d", "conv2d", "conv2d_transpose", "maxout", "pool2d"]

_LAYOUTS = ("NCHW", "NHWC")


def _padding(padding: Any, layout: str, layer: str) -> tuple[str, list[int]]:
    """What users write for a padding, as (algorithm, [top, bottom, left, right]).

    Raises:
        ValueError: none of the ways to write one, or a padding of batch or channels.
    """
    if isinstance(padding, str):
        check_choice(padding.upper(), "padding", ("SAME", "VALID"), layer)
        return padding.upper(), [0, 0, 0, 0]
    if isinstance(padding, (list, tuple)) and len(padding) == 4:
        if all(isinstance(side, (list, tuple)) for side in padding):
            sides = [list(side) for side in padding]
            first = 2 if layout == "NCHW" else 1
            others = sides[:first] + sides[first + 2 :]
            if any(other != [0, 0] for other in others):
                raise ValueError(f"{layer} cannot pad batch or channels, as {padding} asks for")
            padding = [number for side in sides[first : first + 2] for number in side]
        return "EXPLICIT", pair(padding, "padding", 4)
    height, width = pair(padding, "padding")
    return "EXPLICIT", [height, height, width, width]


def _short(padding: list[int]) -> list[int]:
    """``[height, width]`` where both sides are padded alike."""
    top, bottom, left, right = padding
    return [top, left] if top == bottom and left == right else padding


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
        groups: channels are split into so many independent convolutions.
        param_attr: attributes of the filters; by default normal with variance 2 / inputs.
        bias_attr: attributes of the bias; False for none.
        use_cudnn: accepted for fluid's sake; False selects the depthwise operator where it fits.
        act: name of an activation.
        name: prefix of names.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Returns:
        ``(N, num_filters, H', W')`` in the same format. Source: Paddle ops ``conv2d``,
        ``depthwise_conv2d``.

    Raises:
        ValueError: arguments do not fit.
    """
    check_variable_and_dtype(input, "input", FLOATS, "conv2d")
    check_choice(use_cudnn, "use_cudnn", (True, False), "conv2d")
    check_choice(data_format, "data_format", _LAYOUTS, "conv2d")
    assert param_attr is not False, "param_attr of conv2d cannot be False: it has filters"
    channels = input.shape[1 if data_format == "NCHW" else 3]
    if channels < 0:
        raise ValueError(f"conv2d must know the channels of {input.name}, but it has {input.shape}")
    if groups is not None and channels % groups:
        raise ValueError(
            f"the {channels} channels of {input.name} do not divide by groups={groups}"
        )
    depthwise = channels == groups and num_filters % channels == 0 and not use_cudnn
    helper = LayerHelper(
        "depthwise_conv2d" if depthwise else "conv2d",
        param_attr=param_attr,
        bias_attr=bias_attr,
        use_cudnn=use_cudnn,
        act=act,
        name=name,
    )
    height, width = pair(filter_size, "filter_size")
    algorithm, sides = _padding(padding, data_format, "conv2d")
    filters = helper.create_parameter(
        helper.param_attr,
        [num_filters, channels // (groups or 1), height, width],
        input.dtype,
        default_initializer=Normal(0.0, (2.0 / (height * width * channels)) ** 0.5),
    )
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        type=helper.layer_type,
        inputs={"Input": input, "Filter": filters},
        outputs={"Output": out},
        attrs={
            "strides": pair(stride, "stride"),
            "paddings": _short(sides),
            "dilations": pair(dilation, "dilation"),
            "groups": groups,
            "use_cudnn": use_cudnn,
            "padding_algorithm": algorithm,
            "data_format": data_format,
        },
    )
    return _bias_and_activation(helper, out, data_format)


def _bias_and_activation(helper: LayerHelper, out: Variable, data_format: str) -> Variable:
    axis = 1 if data_format == "NCHW" else 3
    return helper.append_activation(helper.append_bias_op(out, axis, axis + 1))


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
    """Transposed convolution: the gradient of a convolution as a layer, to enlarge images.

    Args:
        input: ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_format`` says.
        num_filters: channels of the result.
        output_size: height and width of the result; with it ``filter_size`` can be left out.
        filter_size: height and width of the filters, or one number for both.
        padding: as for :func:`conv2d`; cut off the result.
        stride: steps between positions in the result.
        dilation: distance between the points of a filter.
        groups: channels are split into so many independent convolutions.
        param_attr: attributes of the filters.
        bias_attr: attributes of the bias; False for none.
        use_cudnn: accepted for fluid's sake; False selects the depthwise operator where it fits.
        act: name of an activation.
        name: prefix of names.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Returns:
        ``(N, num_filters, H', W')`` in the same format. Source: Paddle op ``conv2d_transpose``.

    Raises:
        ValueError: arguments do not fit.
    """
    check_type(input, "input", Variable, "conv2d_transpose")
    check_choice(use_cudnn, "use_cudnn", (True, False), "conv2d_transpose")
    check_choice(data_format, "data_format", _LAYOUTS, "conv2d_transpose")
    assert param_attr is not False, "param_attr of conv2d_transpose cannot be False"
    channel_axis, first = (1, 2) if data_format == "NCHW" else (3, 1)
    channels = input.shape[channel_axis]
    depthwise = channels == groups and num_filters == channels and not use_cudnn
    helper = LayerHelper(
        "depthwise_conv2d_transpose" if depthwise else "conv2d_transpose",
        param_attr=param_attr,
        bias_attr=bias_attr,
        use_cudnn=use_cudnn,
        act=act,
        name=name,
    )
    strides, dilations = pair(stride, "stride"), pair(dilation, "dilation")
    algorithm, sides = _padding(padding, data_format, "conv2d_transpose")
    wanted = [] if output_size is None else pair(output_size, "output_size")
    if filter_size is None:
        if not wanted:
            raise ValueError("conv2d_transpose needs filter_size or output_size")
        size = [
            (
                wanted[i]
                - (input.shape[first + i] - 1) * strides[i]
                + sides[2 * i]
                + sides[2 * i + 1]
                - 1
            )
            // dilations[i]
            + 1
            for i in (0, 1)
        ]
    else:
        size = pair(filter_size, "filter_size")
    filters = helper.create_parameter(
        helper.param_attr, [channels, num_filters // (groups or 1), *size], input.dtype
    )
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        type=helper.layer_type,
        inputs={"Input": input, "Filter": filters},
        outputs={"Output": out},
        attrs={
            "output_size": wanted,
            "strides": strides,
            "paddings": _short(sides),
            "padding_algorithm": algorithm,
            "dilations": dilations,
            "groups": groups or 1,
            "use_cudnn": use_cudnn,
            "data_format": data_format,
        },
    )
    return _bias_and_activation(helper, out, data_format)


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
    """The greatest or the mean element of every window.

    Args:
        input: ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_format`` says.
        pool_size: height and width of the windows, or one number for both.
        pool_type: ``"max"`` or ``"avg"``.
        pool_stride: steps between windows.
        pool_padding: as for :func:`conv2d`.
        global_pooling: one window that covers the image.
        use_cudnn: accepted for fluid's sake.
        ceil_mode: let windows begin that do not fit.
        name: prefix of names.
        exclusive: leave the padding out of means.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Returns:
        ``(N, C, H', W')`` in the same format. Source: Paddle op ``pool2d``.

    Raises:
        ValueError: arguments do not fit.
        TypeError: ``use_cudnn`` is not a bool.
    """
    check_choice(pool_type, "pool_type", ("max", "avg"), "pool2d")
    check_type(use_cudnn, "use_cudnn", bool, "pool2d")
    check_choice(data_format, "data_format", _LAYOUTS, "pool2d")
    if not global_pooling and pool_size == -1:
        raise ValueError("pool2d needs pool_size unless global_pooling is True")
    algorithm, sides = _padding(pool_padding, data_format, "pool2d")
    if algorithm == "VALID" and ceil_mode:
        raise ValueError("pool2d cannot have ceil_mode with pool_padding 'VALID'")
    attrs = {
        "pooling_type": pool_type,
        "ksize": pair(pool_size, "pool_size"),
        "global_pooling": global_pooling,
        "strides": pair(pool_stride, "pool_stride"),
        "paddings": _short(sides),
        "padding_algorithm": algorithm,
        "use_cudnn": use_cudnn,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "data_format": data_format,
    }
    check_type(input, "input", Variable, "pool2d")
    return add_op("pool2d", {"X": input}, input.dtype, attrs, name=name)


def adaptive_pool2d(
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Variable:
    """Pooling to a given size of the result.

    Args:
        input: ``(N, C, H, W)``.
        pool_size: height and width of the result, or one number for both.
        pool_type: ``"max"`` or ``"avg"``.
        require_index: positions of the greatest are not supported, only False.
        name: prefix of names.

    Returns:
        ``(N, C, height, width)``. Source: Paddle op ``pool2d``.

    Raises:
        NotImplementedError: positions are asked for.
        ValueError: positions of means are asked for, or the pool type is unknown.
    """
    check_variable_and_dtype(input, "input", (*FLOATS, "int32", "int64"), "adaptive_pool2d")
    check_type(pool_size, "pool_size", (int, list, tuple), "adaptive_pool2d")
    check_type(require_index, "require_index", bool, "adaptive_pool2d")
    check_choice(pool_type, "pool_type", ("max", "avg"), "adaptive_pool2d")
    if pool_type == "avg" and require_index:
        raise ValueError("adaptive_pool2d has no positions for pool_type 'avg'")
    if require_index:
        raise NotImplementedError(
            "adaptive_pool2d(require_index=True) is not supported; without it, it is"
        )
    attrs = {"pooling_type": pool_type, "ksize": pair(pool_size, "pool_size"), "adaptive": True}
    return add_op("pool2d", {"X": input}, input.dtype, attrs, name=name)


def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """The greatest of every ``groups`` neighbouring channels.

    Args:
        x: ``(N, C, H, W)``, or ``(N, H, W, C)`` with ``axis`` 3 or -1.
        groups: divides C.
        name: prefix of names.
        axis: where the channels are.

    Returns:
        C divided by ``groups``. Source: Paddle op ``maxout``; Goodfellow and others, 2013.
    """
    check_variable_and_dtype(x, "x", ("float32", "float64"), "maxout")
    check_choice(axis, "axis", (1, -1, 3), "maxout")
    attrs = {"groups": groups, "axis": 3 if axis == -1 else axis}
    return add_op("maxout", {"X": x}, x.dtype, attrs, name=name)
