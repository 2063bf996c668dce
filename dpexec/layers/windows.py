"""Code shared by convolution and pooling layers of images and volumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.checks import check_choice, check_type, check_variable_and_dtype, pair
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.variable import Variable
from dpexec.initializer import Normal
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

IMAGES, VOLUMES = ("NCHW", "NHWC"), ("NCDHW", "NDHWC")
"""The layouts, channels first and last."""


def padding_of(padding: Any, layout: str, layer: str) -> tuple[str, list[int]]:
    """Normalise a user's padding to (algorithm, [top, bottom, left, right]).

    For volumes a pair for the depth comes first.

    Raises:
        ValueError: the form is unknown, or the batch or the channels are padded.
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
    """Shorten to ``[height, width]`` if both sides have the same padding."""
    before, after = padding[::2], padding[1::2]
    return before if before == after else padding


@dataclass(frozen=True)
class Filters:
    """The geometry of a convolution's filters, with the layer's arguments.

    Args:
        layer: name of the layer.
        layouts: allowed values of ``data_format``.
        data_format: position of the channels.
        count: number of filters, the channels of the result.
        size: size of each filter; None derives it from the size of the result.
        stride: steps between positions.
        padding: see :func:`padding_of`.
        dilation: distance between the points of a filter.
        groups: number of independent convolutions that the channels are split into.
    """

    layer: str
    layouts: tuple[str, str]
    data_format: str
    count: int
    size: int | Sequence[int] | None
    stride: int | Sequence[int]
    padding: Any
    dilation: int | Sequence[int]
    groups: int | None

    @property
    def axes(self) -> int:
        """The number of spatial dimensions."""
        return len(self.data_format) - 2

    @property
    def channel_axis(self) -> int:
        """The axis of the channels."""
        return 1 if self.data_format == self.layouts[0] else self.axes + 1

    def check(self, input: Variable, param_attr: Any, use_cudnn: Any) -> None:
        """Check the layer's arguments.

        Raises:
            TypeError: ``input`` is no Variable.
            ValueError: ``use_cudnn`` or ``data_format`` has an invalid value.
            AssertionError: ``param_attr`` is False.
        """
        check_type(input, "input", Variable, self.layer)
        if not isinstance(use_cudnn, bool):
            raise ValueError(f"use_cudnn of {self.layer} must be a bool, not {use_cudnn!r}")
        check_choice(self.data_format, "data_format", self.layouts, self.layer)
        if param_attr is False:
            raise AssertionError(f"param_attr of {self.layer} cannot be False: it has filters")

    def attrs(self) -> tuple[dict[str, Any], list[int]]:
        """The operators' attributes for strides, padding and dilation; and the full padding."""
        algorithm, sides = padding_of(self.padding, self.data_format, self.layer)
        attrs = {
            "strides": pair(self.stride, "stride", self.axes),
            "paddings": shortest(sides),
            "padding_algorithm": algorithm,
            "dilations": pair(self.dilation, "dilation", self.axes),
        }
        return attrs, sides

    def apply(
        self, helper: LayerHelper, input: Variable, filters: Variable, attrs: dict[str, Any]
    ) -> Variable:
        """Add the operator, its bias and its activation."""
        axis, inputs = self.channel_axis, {"Input": input, "Filter": filters}
        out = add_outputs(helper, inputs, {"Output": input.dtype}, attrs)["Output"]
        return helper.append_activation(helper.append_bias_op(out, axis, axis + 1))


def convolution(filters: Filters, input: Variable, depthwise: str = "", **options: Any) -> Variable:
    """Add a convolution with its filters, bias and activation.

    Args:
        filters: geometry of the filters.
        input: images or volumes.
        depthwise: the operator for depthwise convolutions without cuDNN.
        options: ``param_attr``, ``bias_attr``, ``use_cudnn``, ``act`` and ``name``.

    Returns:
        The result.

    Raises:
        ValueError: arguments do not fit.
    """
    use_cudnn, groups = options["use_cudnn"], filters.groups
    filters.check(input, options["param_attr"], use_cudnn)
    channels = input.shape[filters.channel_axis]
    if channels < 0:
        raise ValueError(
            f"{filters.layer} must know the channels of {input.name}, but it has {input.shape}"
        )
    if groups is not None and channels % groups:
        raise ValueError(
            f"the {channels} channels of {input.name} do not divide by groups={groups}"
        )
    apart = channels == groups and filters.count % channels == 0 and not use_cudnn
    helper = LayerHelper(depthwise if depthwise and apart else filters.layer, **options)
    size = pair(filters.size, "filter_size", filters.axes)
    attrs, _ = filters.attrs()
    weights = helper.create_parameter(
        helper.param_attr,
        [filters.count, channels // (groups or 1), *size],
        input.dtype,
        default_initializer=Normal(0.0, (2.0 / (channels * math.prod(size))) ** 0.5),
    )
    attrs |= {"groups": groups, "use_cudnn": use_cudnn, "data_format": filters.data_format}
    return filters.apply(helper, input, weights, attrs)


def transposed_convolution(
    filters: Filters,
    input: Variable,
    output_size: int | Sequence[int] | None,
    depthwise: str = "",
    **options: Any,
) -> Variable:
    """Add a transposed convolution; arguments as for :func:`convolution`.

    Args:
        filters: geometry of the filters on the result.
        input: images or volumes.
        output_size: size of the result; None derives it from the filters.
        depthwise: the operator for depthwise convolutions without cuDNN.
        options: ``param_attr``, ``bias_attr``, ``use_cudnn``, ``act`` and ``name``.

    Returns:
        The result.

    Raises:
        ValueError: arguments do not fit.
    """
    use_cudnn, groups, axes = options["use_cudnn"], filters.groups, filters.axes
    filters.check(input, options["param_attr"], use_cudnn)
    if groups is not None and groups < 1:
        raise ValueError(f"groups of {filters.layer} must be positive, but is {groups}")
    channels = input.shape[filters.channel_axis]
    apart = channels == groups and filters.count == channels and not use_cudnn
    helper = LayerHelper(depthwise if depthwise and apart else filters.layer, **options)
    attrs, sides = filters.attrs()
    wanted = [] if output_size is None else pair(output_size, "output_size", axes)
    if filters.size is not None:
        size = pair(filters.size, "filter_size", axes)
    elif wanted:
        given = input.shape[2:] if filters.channel_axis == 1 else input.shape[1:-1]
        size = [
            (wanted[i] - (given[i] - 1) * attrs["strides"][i] + sum(sides[2 * i : 2 * i + 2]) - 1)
            // attrs["dilations"][i]
            + 1
            for i in range(axes)
        ]
    else:
        raise ValueError(f"{filters.layer} needs filter_size or output_size")
    weights = helper.create_parameter(
        helper.param_attr, [channels, filters.count // (groups or 1), *size], input.dtype
    )
    attrs |= {
        "output_size": wanted,
        "groups": groups or 1,
        "use_cudnn": use_cudnn,
        "data_format": IMAGES[filters.layouts.index(filters.data_format)],
    }
    return filters.apply(helper, input, weights, attrs)


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
    if not global_pooling and np.array_equal(pool_size, -1):
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
