"""Layers that rearrange channels, pixels, frames and steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import (
    FLOATS,
    NO_HALF,
    NUMBERS,
    SINGLE_DOUBLE,
    check_dtype,
    check_type,
    check_variable_and_dtype,
    pair,
)
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__ = [
    "continuous_value_model",
    "meshgrid",
    "pad_constant_like",
    "pixel_shuffle",
    "polygon_box_transform",
    "row_conv",
    "shuffle_channel",
    "space_to_depth",
    "temporal_shift",
    "unfold",
]


def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Rearrange channels into the pixels of larger images.

    Args:
        x: ``(N, C * f * f, H, W)``.
        upscale_factor: ``f``.

    Returns:
        ``(N, C, H * f, W * f)``. Source: Paddle op ``pixel_shuffle``; Shi and others, 2016.

    Raises:
        TypeError: ``x`` is no variable of type float32 or float64.
        EnforceNotMet: ``x`` is no images, or its channels are no multiple of the square of
            ``upscale_factor``.

    See Also:
        :func:`image_resize`: any method.
        :func:`resize_bilinear`: between pixels.
        :func:`resize_nearest`: the nearest pixel.
        :func:`image_resize_short`: by the shorter side.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]], "float32"))
        ...     out = fluid.layers.pixel_shuffle(x, upscale_factor=2)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[[[1., 2.],
                 [3., 4.]]]], dtype=float32)]
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "pixel_shuffle")
    check_type(upscale_factor, "upscale_factor", int, "pixel_shuffle")
    return add_op("pixel_shuffle", {"X": x}, x.dtype, {"upscale_factor": upscale_factor})


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Interleave groups of channels: first the first channel of each group, then the second ones.

    Args:
        x: ``(N, C, H, W)``.
        group: number of groups.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``shuffle_channel``; Zhang and others, 2017.

    Raises:
        TypeError: ``x`` is no variable, or ``group`` is no int.
        EnforceNotMet: ``x`` does not have four dimensions, or its channels cannot be divided.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8, 4, 4])
        ...     fluid.layers.shuffle_channel(x, group=2).shape
        (-1, 8, 4, 4)
    """
    check_type(x, "x", Variable, "shuffle_channel")
    check_type(group, "group", int, "shuffle_channel")
    return add_op("shuffle_channel", {"X": x}, x.dtype, {"group": group}, name=name)


def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Rearrange blocks of pixels into channels, as in the layer "reorg" of Darknet.

    Args:
        x: ``(N, C, H, W)``.
        blocksize: side of a block.
        name: prefix of names.

    Returns:
        ``(N, C * blocksize**2, H / blocksize, W / blocksize)``. Source: Paddle op
        ``space_to_depth``.

    Raises:
        ValueError: ``blocksize`` is not an integer.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 4, 8, 8])
        ...     fluid.layers.space_to_depth(x, blocksize=2).shape
        (-1, 16, 4, 4)
    """
    if not isinstance(blocksize, int):
        raise ValueError(f"blocksize of space_to_depth must be an integer, not {blocksize!r}")
    check_variable_and_dtype(x, "x", NUMBERS, "space_to_depth")
    return add_op("space_to_depth", {"X": x}, x.dtype, {"blocksize": blocksize}, name=name)


def temporal_shift(
    x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None
) -> Variable:
    """Replace some channels of every frame by those of the previous and the next frame.

    Args:
        x: frames ``(N * seg_num, C, H, W)``.
        seg_num: number of frames per video.
        shift_ratio: share of the channels to shift in each direction.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``temporal_shift``; Lin, Gan, Han, 2018.

    Raises:
        TypeError: ``x`` is no variable, ``seg_num`` no int, or ``shift_ratio`` no float.
        EnforceNotMet: ``x`` does not have four dimensions, the frames cannot be divided, or
            ``shift_ratio`` lies outside of 0 to 0.5.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     frames = np.arange(8, dtype="float32").reshape(2, 4, 1, 1)  # a film of two frames
        ...     out = fluid.layers.temporal_shift(fluid.layers.assign(frames), seg_num=2)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].reshape(2, 4).tolist()
        [[0.0, 5.0, 2.0, 3.0], [0.0, 0.0, 6.0, 7.0]]
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "temporal_shift")
    check_type(seg_num, "seg_num", int, "temporal_shift")
    check_type(shift_ratio, "shift_ratio", float, "temporal_shift")
    attrs = {"seg_num": seg_num, "shift_ratio": shift_ratio}
    return add_op("temporal_shift", {"X": x}, x.dtype, attrs, name=name)


def unfold(
    x: Variable,
    kernel_sizes: int | Sequence[int],
    strides: int | Sequence[int] = 1,
    paddings: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    name: str | None = None,
) -> Variable:
    """Every window over the images as a column.

    Args:
        x: ``(N, C, H, W)``.
        kernel_sizes: height and width of the window, or one number.
        strides: distances between windows.
        paddings: one number, (height, width), or (top, left, bottom, right).
        dilations: distances between the elements of the window.
        name: prefix of names.

    Returns:
        ``(N, C * height * width, positions)``. Source: Paddle op ``unfold``.

    Raises:
        ValueError: an argument has the wrong length.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     fluid.layers.unfold(x, kernel_sizes=[3, 3]).shape
        (-1, 27, 900)
    """
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, "unfold")
    if len(x.shape) != 4:
        raise AssertionError(f"x of unfold must be (N, C, H, W), but has the shape {x.shape}")
    if isinstance(paddings, list) and len(paddings) == 2:
        paddings = paddings * 2
    attrs = {
        "kernel_sizes": pair(kernel_sizes, "kernel_sizes"),
        "strides": pair(strides, "strides"),
        "paddings": pair(paddings, "paddings", 4),
        "dilations": pair(dilations, "dilations"),
    }
    return add_op("unfold", {"X": x}, x.dtype, attrs, slot="Y", name=name)


def meshgrid(input: list[Variable], name: str | None = None) -> list[Variable]:
    """Coordinate grids: each vector is laid along its own axis and repeated along the others.

    Args:
        input: vectors of one data type, ``(n1,)``, ``(n2,)``, ...
        name: prefix of names.

    Returns:
        As many tensors as vectors, each ``(n1, n2, ...)``. Source: Paddle op ``meshgrid``.

    Raises:
        EnforceNotMet: an input is no vector.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0], "float32"))
        ...     y = fluid.layers.assign(np.array([3.0, 4.0, 5.0], "float32"))
        ...     out = fluid.layers.meshgrid([x, y])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=list(out))
        [array([[1., 1., 1.],
               [2., 2., 2.]], dtype=float32), array([[3., 4., 5.],
               [3., 4., 5.]], dtype=float32)]
    """
    check_type(input, "input", list, "meshgrid")
    for var in input:
        check_dtype(var.dtype, "create data type", NUMBERS, "meshgrid")
    helper = LayerHelper("meshgrid", name=name)
    made = [helper.create_variable_for_type_inference(var.dtype) for var in input]
    helper.append_op(type="meshgrid", inputs={"X": input}, outputs={"Out": made})
    return made


def pad_constant_like(
    x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None
) -> Variable:
    """``y`` padded to the shape of ``x``.

    Args:
        x: the tensor whose shape is used.
        y: the tensor to pad; no dimension may be larger than that of ``x``.
        pad_value: value appended at the end of every dimension.
        name: prefix of names.

    Returns:
        The shape of ``x``. Source: Paddle op ``pad_constant_like``.

    Raises:
        TypeError: ``y`` is no variable of type float32, float64, int32 or int64.
        EnforceNotMet: ``y`` has another rank or type than ``x``, or a larger dimension.

    See Also:
        :func:`pad`: any axes.
        :func:`pad2d`: images.
        :func:`sequence_pad`: sequences.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.0, 0.0, 0.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[1.0, 2.0]], "float32"))
        ...     out = fluid.layers.pad_constant_like(x, y, pad_value=9.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 2., 9.]], dtype=float32)]
    """
    check_type(x, "x", Variable, "pad_constant_like")
    check_variable_and_dtype(y, "y", NO_HALF, "pad_constant_like")
    attrs = {"pad_value": float(pad_value)}
    return add_op("pad_constant_like", {"X": x, "Y": y}, x.dtype, attrs, name=name)


def row_conv(
    input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None
) -> Variable:
    """Weighted sums of every step and the following ones, with trainable rows of weights.

    Args:
        input: float32 ``(rows, D)`` with sequences, or dense sequences ``(N, T, D)``.
        future_context_size: number of following steps.
        param_attr: attributes of the rows ``(future_context_size + 1, D)``.
        act: name of an activation.

    Returns:
        The same shape. Source: Paddle op ``row_conv``; Amodei and others, 2015.

    Raises:
        TypeError: ``input`` is no variable of type float32.
        EnforceNotMet: ``input`` is neither rows of sequences nor ``(N, T, D)``.
        ValueError: ``future_context_size`` is negative.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 9, 16])
        ...     fluid.layers.row_conv(x, future_context_size=2).shape
        (-1, 9, 16)
    """
    check_variable_and_dtype(input, "input", ("float32",), "row_conv")
    helper = LayerHelper("row_conv", param_attr=param_attr, act=act)
    shape = [future_context_size + 1, input.shape[-1]]
    weight = helper.create_parameter(helper.param_attr, shape, input.dtype)
    made = add_outputs(helper, {"X": input, "Filter": weight}, {"Out": input.dtype})
    return helper.append_activation(made["Out"])


def polygon_box_transform(input: Variable, name: str | None = None) -> Variable:
    """Convert offsets of corners to coordinates in the image.

    Args:
        input: ``(N, C, H, W)``; the channels hold offsets in columns and in rows in turn.
        name: prefix of names.

    Returns:
        The same shape. Source: Paddle op ``polygon_box_transform``; Zhou and others, 2017.

    Raises:
        TypeError: ``input`` is no variable.
        EnforceNotMet: ``input`` does not have four dimensions, or an odd number of channels.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.ones([1, 2, 1, 3], "float32"))  # offsets of one corner
        ...     out = fluid.layers.polygon_box_transform(x)
        ...     (found,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        >>> found.tolist()  # a position of the features is four pixels
        [[[[-1.0, 3.0, 7.0]], [[-1.0, -1.0, -1.0]]]]
    """
    op_type = "polygon_box_transform"
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, op_type)
    return add_op(op_type, {"Input": input}, input.dtype, slot="Output", name=name)


def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Replace the first two columns, shows and clicks, by logarithms, or remove them.

    Args:
        input: ``(N, D)``; the first two columns are shows and clicks.
        cvm: shows and clicks ``(N, 2)``; used as gradient of the first two columns.
        use_cvm: keep both columns.

    Returns:
        ``(N, D)``, or ``(N, D - 2)``. Source: Paddle op ``cvm``.

    Raises:
        TypeError: ``input`` is no variable of type float16, float32 or float64.
        EnforceNotMet: ``input`` is no matrix, or ``cvm`` does not have two numbers for each of its
            rows.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[9, 1, 0.5, 4]], "float32"))  # 9 shows, 1 click
        ...     counts = fluid.layers.assign(np.array([[9, 1]], "float32"))
        ...     both = fluid.layers.continuous_value_model(x, counts)
        ...     without = fluid.layers.continuous_value_model(x, counts, use_cvm=False)
        ...     found = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[both, without])
        >>> [value[0].astype(float).round(2).tolist() for value in found]  # log(9 + 1) ...
        [[2.3, -1.61, 0.5, 4.0], [0.5, 4.0]]
    """
    check_variable_and_dtype(input, "input", FLOATS, "cvm")
    check_type(cvm, "cvm", (Variable, str), "cvm")
    helper = LayerHelper("cvm")
    out = helper.create_variable(dtype=input.dtype)
    inputs, attrs = {"X": input, "CVM": cvm}, {"use_cvm": use_cvm}
    helper.append_op(type="cvm", inputs=inputs, outputs={"Y": out}, attrs=attrs)
    return out
