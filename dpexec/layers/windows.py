"""What layers with windows share, be it over images or over volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import check_choice, check_type, check_variable_and_dtype, pair
from dpexec.initializer import Normal
from dpexec.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

IMAGES, VOLUMES = ("NCHW", "NHWC"), ("NCDHW", "NDHWC")
"""The layouts, channels first and last."""


def padding_of(padding: Any, layout: str, layer: str) -> tuple[str, list[int]]:
    """What users write for a padding, as (algorithm, [top, bottom, left, right]).

    Volumes have a pair for the depth before it.

    Raises:
        ValueError: none of the ways to write one, or a padding of batch or channels.
    """
    axes = len(layout) - 2
    if isinstance(padding, str):
        check_choice(padding.upper(), "padding", ("SAME", "VALID"), layer)
        return padding.upper(), [0] * 2 * axes
    if isinstance(padding, (list, tuple)):
        if padding and all(isinstance(side, (list, tuple)) for side in padding):
            sides = [list(side) for side in padding]
            first = layout.index("H" if axes == 2 else "D")
            others = sides[:first] + sides[first + axes :]
            if any(other != [0, 0] for other in others):
                raise ValueError(f"{layer} cannot pad batch or channels, as {padding} asks for")
            padding = [number for side in sides[first : first + axes] for number in side]
        if len(padding) == 2 * axes:
            return "EXPLICIT", pair(padding, "padding", 2 * axes)
    both = pair(padding, "padding", axes)
    return "EXPLICIT", [number for number in both for _ in range(2)]


def shortest(padding: list[int]) -> list[int]:
    """``[height, width]`` where both sides are padded alike."""
    before, after = padding[::2], padding[1::2]
    return before if before == after else padding


def _check(
    layer: str, input: Variable, param_attr: Any, use_cudnn: Any, layouts: Any, layout: str
) -> int:
    """Check arguments of a convolution; where the channels are."""
    check_type(input, "input", Variable, layer)
    check_choice(use_cudnn, "use_cudnn", (True, False), layer)
    check_choice(layout, "data_format", layouts, layer)
    assert param_attr is not False, f"param_attr of {layer} cannot be False: it has filters"
    return 1 if layout == layouts[0] else len(layout) - 1


def _filtered(
    helper: LayerHelper, input: Variable, filters: Variable, attrs: dict[str, Any], axis: int
) -> Variable:
    """Add the operator, its bias and its activation; the channels are at ``axis``."""
    inputs = {"Input": input, "Filter": filters}
    out = add_outputs(helper, inputs, {"Output": input.dtype}, attrs)["Output"]
    return helper.append_activation(helper.append_bias_op(out, axis, axis + 1))


def convolution(
    layer: str,
    layouts: tuple[str, str],
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: Any,
    dilation: int | Sequence[int],
    groups: int | None,
    data_format: str,
    depthwise: str | None = None,
    **options: Any,
) -> Variable:
    """Add a convolution with its filters, bias and activation.

    Args:
        layer: ``"conv2d"`` or ``"conv3d"``.
        layouts: those that ``data_format`` may name.
        input, num_filters ... data_format: arguments of the layer.
        depthwise: the operator for channels that are convolved apart, without cuDNN.
        options: ``param_attr``, ``bias_attr``, ``use_cudnn``, ``act`` and ``name``.

    Returns:
        The result.

    Raises:
        ValueError: arguments do not fit.
    """
    use_cudnn = options["use_cudnn"]
    axis = _check(layer, input, options["param_attr"], use_cudnn, layouts, data_format)
    channels = input.shape[axis]
    if channels < 0:
        raise ValueError(
            f"{layer} must know the channels of {input.name}, but it has {input.shape}"
        )
    if groups is not None and channels % groups:
        raise ValueError(
            f"the {channels} channels of {input.name} do not divide by groups={groups}"
        )
    apart = depthwise and channels == groups and num_filters % channels == 0 and not use_cudnn
    helper = LayerHelper(depthwise if depthwise and apart else layer, **options)
    axes = len(data_format) - 2
    size = pair(filter_size, "filter_size", axes)
    algorithm, sides = padding_of(padding, data_format, layer)
    inputs = channels
    for extent in size:
        inputs *= extent
    filters = helper.create_parameter(
        helper.param_attr,
        [num_filters, channels // (groups or 1), *size],
        input.dtype,
        default_initializer=Normal(0.0, (2.0 / inputs) ** 0.5),
    )
    attrs = {
        "strides": pair(stride, "stride", axes),
        "paddings": shortest(sides),
        "dilations": pair(dilation, "dilation", axes),
        "groups": groups,
        "use_cudnn": use_cudnn,
        "padding_algorithm": algorithm,
        "data_format": data_format,
    }
    return _filtered(helper, input, filters, attrs, axis)


def transposed_convolution(
    layer: str,
    layouts: tuple[str, str],
    input: Variable,
    num_filters: int,
    output_size: int | Sequence[int] | None,
    filter_size: int | Sequence[int] | None,
    padding: Any,
    stride: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int | None,
    data_format: str,
    depthwise: str | None = None,
    **options: Any,
) -> Variable:
    """Add a transposed convolution; arguments as for :func:`convolution`.

    Args:
        layer: ``"conv2d_transpose"`` or ``"conv3d_transpose"``.
        layouts: those that ``data_format`` may name.
        input, num_filters ... data_format: arguments of the layer.
        depthwise: the operator for channels that are convolved apart, without cuDNN.
        options: ``param_attr``, ``bias_attr``, ``use_cudnn``, ``act`` and ``name``.

    Returns:
        The result.

    Raises:
        ValueError: arguments do not fit.
    """
    use_cudnn = options["use_cudnn"]
    axis = _check(layer, input, options["param_attr"], use_cudnn, layouts, data_format)
    channels, axes = input.shape[axis], len(data_format) - 2
    apart = depthwise and channels == groups and num_filters == channels and not use_cudnn
    helper = LayerHelper(depthwise if depthwise and apart else layer, **options)
    strides, dilations = pair(stride, "stride", axes), pair(dilation, "dilation", axes)
    algorithm, sides = padding_of(padding, data_format, layer)
    wanted = [] if output_size is None else pair(output_size, "output_size", axes)
    if filter_size is not None:
        size = pair(filter_size, "filter_size", axes)
    elif wanted:
        given = input.shape[2:] if axis == 1 else input.shape[1:-1]
        size = [
            (wanted[i] - (given[i] - 1) * strides[i] + sides[2 * i] + sides[2 * i + 1] - 1)
            // dilations[i]
            + 1
            for i in range(axes)
        ]
    else:
        raise ValueError(f"{layer} needs filter_size or output_size")
    filters = helper.create_parameter(
        helper.param_attr, [channels, num_filters // (groups or 1), *size], input.dtype
    )
    attrs = {
        "output_size": wanted,
        "strides": strides,
        "paddings": shortest(sides),
        "padding_algorithm": algorithm,
        "dilations": dilations,
        "groups": groups or 1,
        "use_cudnn": use_cudnn,
        "data_format": IMAGES[layouts.index(data_format)],
    }
    return _filtered(helper, input, filters, attrs, axis)


def pooling(
    layer: str,
    layouts: tuple[str, str],
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str,
    pool_stride: int | Sequence[int],
    pool_padding: Any,
    global_pooling: bool,
    use_cudnn: bool,
    ceil_mode: bool,
    name: str | None,
    exclusive: bool,
    data_format: str,
) -> Variable:
    """Add pooling; the arguments are those of the layers.

    Raises:
        ValueError: arguments do not fit.
        TypeError: ``use_cudnn`` is not a bool.
    """
    check_choice(pool_type, "pool_type", ("max", "avg"), layer)
    check_type(use_cudnn, "use_cudnn", bool, layer)
    check_choice(data_format, "data_format", layouts, layer)
    if not global_pooling and pool_size == -1:
        raise ValueError(f"{layer} needs pool_size unless global_pooling is True")
    algorithm, sides = padding_of(pool_padding, data_format, layer)
    if algorithm == "VALID" and ceil_mode:
        raise ValueError(f"{layer} cannot have ceil_mode with pool_padding 'VALID'")
    axes = len(data_format) - 2
    attrs = {
        "pooling_type": pool_type,
        "ksize": pair(pool_size, "pool_size", axes),
        "global_pooling": global_pooling,
        "strides": pair(pool_stride, "pool_stride", axes),
        "paddings": shortest(sides),
        "padding_algorithm": algorithm,
        "use_cudnn": use_cudnn,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "data_format": data_format,
    }
    check_type(input, "input", Variable, layer)
    return add_op(layer, {"X": input}, input.dtype, attrs, name=name)


def adaptive_pooling(
    axes: int,
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str,
    require_index: bool,
    name: str | None,
) -> Any:
    """Add pooling to a size over 2 or 3 ``axes``; the arguments are those of the layers.

    Raises:
        ValueError: arguments do not fit.
    """
    layer = f"adaptive_pool{axes}d"
    numbers = ("float16", "float32", "float64", "int32", "int64")
    check_variable_and_dtype(input, "input", numbers, layer)
    check_type(pool_type, "pool_type", str, layer)
    check_type(pool_size, "pool_size", (int, list, tuple), layer)
    check_type(require_index, "require_index", bool, layer)
    check_choice(pool_type, "pool_type", ("max", "avg"), layer)
    if pool_type == "avg" and require_index:
        raise ValueError(f"{layer} has no positions for pool_type 'avg'")
    attrs = {"ksize": pair(pool_size, "pool_size", axes), "adaptive": True}
    if pool_type == "avg":
        attrs["pooling_type"] = pool_type
        return add_op(f"pool{axes}d", {"X": input}, input.dtype, attrs, name=name)
    helper = LayerHelper(f"max_pool{axes}d_with_index", name=name)
    made = add_outputs(helper, {"X": input}, {"Out": input.dtype, "Mask": "int32"}, attrs)
    return (made["Out"], made["Mask"]) if require_index else made["Out"]
