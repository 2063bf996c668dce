"""Pooling of features in regions of interest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__ = [
    "deformable_roi_pooling",
    "prroi_pool",
    "psroi_pool",
    "roi_align",
    "roi_perspective_transform",
    "roi_pool",
]


def roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    rois_lod: Variable | None = None,
) -> Variable:
    """Max pooling inside regions.

    Args:
        input: features, ``(N, C, H, W)``.
        rois: left, top, right, bottom of regions, ``(R, 4)``, one sequence per image.
        pooled_height: height of the result.
        pooled_width: width of the result.
        spatial_scale: size of the features relative to the image.
        rois_lod: offsets of the images' regions, ``(N + 1,)``; needed if ``rois`` has no sequences.

    Returns:
        ``(R, C, pooled_height, pooled_width)``. Source: Paddle op ``roi_pool``; Girshick, 2015
        (Fast R-CNN).

    Raises:
        EnforceNotMet: ``input`` is no images, or ``rois`` does not hold four numbers per box.

    See Also:
        :func:`roi_align`: interpolated.
        :func:`psroi_pool`: a channel for each cell.
        :func:`prroi_pool`: exact means.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 16, 32, 32])
        ...     rois = fluid.data("rois", [None, 4], lod_level=1)
        ...     fluid.layers.roi_pool(x, rois, pooled_height=7, pooled_width=7).shape
        (-1, 16, 7, 7)
    """
    inputs = {"X": input, "ROIs": rois, "RoisLod": rois_lod}
    attrs = _attrs(pooled_height, pooled_width, spatial_scale)
    dtypes = {"Out": input.dtype, "Argmax": "int64"}
    return add_outputs(LayerHelper("roi_pool"), inputs, dtypes, attrs)["Out"]


def roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """Average pooling of interpolated values inside regions.

    Args:
        input: features, ``(N, C, H, W)``.
        rois: left, top, right, bottom of regions, ``(R, 4)``, one sequence per image.
        pooled_height: height of the result.
        pooled_width: width of the result.
        spatial_scale: size of the features relative to the image.
        sampling_ratio: sampling points per bin in each direction; -1 adapts them to the bin's size.
        name: prefix of names.
        rois_lod: offsets of the images' regions, ``(N + 1,)``; needed if ``rois`` has no sequences.

    Returns:
        ``(R, C, pooled_height, pooled_width)``. Source: Paddle op ``roi_align``; He and others,
        2017 (Mask R-CNN).

    Raises:
        TypeError: ``input`` or ``rois`` is no variable of type float32 or float64.
        EnforceNotMet: ``input`` is no images, or ``rois`` does not hold four numbers per box.

    See Also:
        :func:`roi_pool`: maxima of whole cells.
        :func:`psroi_pool`: a channel for each cell.
        :func:`prroi_pool`: exact means.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 16, 32, 32])
        ...     rois = fluid.data("rois", [None, 4], lod_level=1)
        ...     fluid.layers.roi_align(x, rois, pooled_height=7, pooled_width=7).shape
        (-1, 16, 7, 7)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "roi_align")
    check_variable_and_dtype(rois, "rois", SINGLE_DOUBLE, "roi_align")
    attrs = _attrs(pooled_height, pooled_width, spatial_scale) | {"sampling_ratio": sampling_ratio}
    inputs = {"X": input, "ROIs": rois, "RoisLod": rois_lod}
    return add_op("roi_align", inputs, input.dtype, attrs, name=name)


def prroi_pool(
    input: Variable,
    rois: Variable,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    batch_roi_nums: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Exact average pooling of regions, with gradients for the regions, too.

    Args:
        input: features, ``(N, C, H, W)``.
        rois: left, top, right, bottom of regions, ``(R, 4)``, one sequence per image.
        spatial_scale: size of the features relative to the image.
        pooled_height: height of the result.
        pooled_width: width of the result.
        batch_roi_nums: number of regions per image, ``(N,)``; needed if ``rois`` has no sequences.
        name: prefix of names.

    Returns:
        ``(R, C, pooled_height, pooled_width)``. Source: Paddle op ``prroi_pool``; Jiang and
        others, 2018.

    Raises:
        TypeError: an argument has the wrong type.

    See Also:
        :func:`roi_pool`: maxima of whole cells.
        :func:`roi_align`: interpolated.
        :func:`psroi_pool`: a channel for each cell.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 8, 8])
        ...     rois = fluid.data("rois", [None, 4])
        ...     fluid.layers.prroi_pool(x, rois, pooled_height=2, pooled_width=2).shape
        (-1, 3, 2, 2)
    """
    attrs = _attrs(pooled_height, pooled_width, spatial_scale)
    for argument, value in attrs.items():
        check_type(value, argument, float if argument == "spatial_scale" else int, "prroi_pool")
    inputs = {"X": input, "ROIs": rois, "BatchRoINums": batch_roi_nums}
    return add_op("prroi_pool", inputs, input.dtype, attrs, name=name)


def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """Position-sensitive average pooling: every bin reads its own channel.

    Args:
        input: features, ``(N, output_channels * pooled_height * pooled_width, H, W)``.
        rois: left, top, right, bottom of regions, ``(R, 4)``, one sequence per image.
        output_channels: number of channels of the result.
        spatial_scale: size of the features relative to the image.
        pooled_height: height of the result.
        pooled_width: width of the result.
        name: prefix of names.

    Returns:
        ``(R, output_channels, pooled_height, pooled_width)``. Source: Paddle op ``psroi_pool``;
        Dai and others, 2016 (R-FCN).

    Raises:
        TypeError: an argument has the wrong type.

    See Also:
        :func:`roi_pool`: maxima of whole cells.
        :func:`roi_align`: interpolated.
        :func:`prroi_pool`: exact means.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 8, 16, 16])
        ...     rois = fluid.data("rois", [None, 4], lod_level=1)
        ...     fluid.layers.psroi_pool(x, rois, 2, 1.0, pooled_height=2, pooled_width=2).shape
        (-1, 2, 2, 2)
    """
    attrs = _attrs(pooled_height, pooled_width, spatial_scale)
    attrs["output_channels"] = output_channels
    for argument, value in attrs.items():
        check_type(value, argument, float if argument == "spatial_scale" else int, "psroi_pool")
    return add_op("psroi_pool", {"X": input, "ROIs": rois}, input.dtype, attrs, name=name)


def deformable_roi_pooling(
    input: Variable,
    rois: Variable,
    trans: Variable,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    group_size: Sequence[int] = [1, 1],
    pooled_height: int = 1,
    pooled_width: int = 1,
    part_size: Sequence[int] | None = None,
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    position_sensitive: bool = False,
    name: str | None = None,
) -> Variable:
    """Average pooling of regions whose bins are shifted by learned offsets.

    Args:
        input: features, ``(N, C, H, W)``.
        rois: left, top, right, bottom of regions, ``(R, 4)``, one sequence per image.
        trans: horizontal and vertical offsets, ``(R, 2 * classes, *part_size)``; bins are shifted
            by ``trans_std`` times the offset times the size of their region.
        no_trans: do not shift the bins.
        spatial_scale: size of the features relative to the image.
        group_size: vertical and horizontal number of parts of a region that read separate channels.
        pooled_height: height of the result.
        pooled_width: width of the result.
        part_size: vertical and horizontal number of parts with separate offsets; None: every bin.
        sample_per_part: number of sampling points per bin in each direction.
        trans_std: factor of the offsets, see ``trans``.
        position_sensitive: whether the result has ``C / pooled_height / pooled_width`` channels;
            the original refuses this with Python 3.
        name: prefix of names.

    Returns:
        ``(R, C, pooled_height, pooled_width)``. Source: Paddle op ``deformable_psroi_pooling``;
        Dai and others, 2017 (deformable convolutional networks).

    Raises:
        TypeError: ``input``, ``rois`` or ``trans`` is no variable of type float32 or float64.
        EnforceNotMet: ``input`` is no images, ``rois`` does not hold four numbers per box, or
            ``trans`` does not fit.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.arange(16, dtype="float32").reshape(1, 1, 4, 4))
        ...     rois = fluid.data("rois", [None, 4], lod_level=1)
        ...     moved = fluid.layers.assign(np.zeros([1, 2, 2, 2], "float32"))  # no bin is moved
        ...     out = fluid.layers.deformable_roi_pooling(
        ...         x, rois, moved, pooled_height=2, pooled_width=2, part_size=[2, 2]
        ...     )
        ...     boxes = np.array([[0, 0, 3, 3]], "float32")
        ...     feed = {"rois": fluid.create_lod_tensor(boxes, [[1]], fluid.CPUPlace())}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        >>> np.array(found).tolist()
        [[[[0.0, 1.5], [6.0, 7.5]]]]
    """
    layer = "deformable_roi_pooling"
    for argument, variable in (("input", input), ("rois", rois), ("trans", trans)):
        check_variable_and_dtype(variable, argument, SINGLE_DOUBLE, layer)
    check_type(group_size, "group_size", (list, tuple), layer)
    part_size = (pooled_height, pooled_width) if part_size is None else part_size
    check_type(part_size, "part_size", (list, tuple), layer)
    channels = input.shape[1]
    attrs = _attrs(pooled_height, pooled_width, spatial_scale) | {
        "no_trans": no_trans,
        "output_dim": channels // (pooled_height * pooled_width)
        if position_sensitive
        else channels,
        "group_size": list(group_size),
        "part_size": list(part_size),
        "sample_per_part": sample_per_part,
        "trans_std": trans_std,
    }
    helper = LayerHelper("deformable_psroi_pooling", name=name)
    inputs = {"Input": input, "ROIs": rois, "Trans": trans}
    dtypes = {"Output": input.dtype, "TopCount": "int32"}
    return add_outputs(helper, inputs, dtypes, attrs)["Output"]


def roi_perspective_transform(
    input: Variable,
    rois: Variable,
    transformed_height: int,
    transformed_width: int,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Rectify regions given by four corners to upright images.

    Args:
        input: features, float32 ``(N, C, H, W)``.
        rois: column and row of each corner, clockwise from the top left, float32 ``(R, 8)``, one
            sequence per image.
        transformed_height: height of the result.
        transformed_width: width of the result.
        spatial_scale: size of the features relative to the image.
        name: prefix of names.

    Returns:
        ``(R, C, transformed_height, transformed_width)``; int32 ``(R, 1, transformed_height,
        transformed_width)``: 1 inside the region; and the matrices that map positions in the result
        to positions in the features, ``(R, 9)``. Source: Paddle op ``roi_perspective_transform``.

    Raises:
        TypeError: ``input`` or ``rois`` is no variable of type float32.
        EnforceNotMet: ``input`` is no images, or ``rois`` does not hold eight numbers per box.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.arange(16, dtype="float32").reshape(1, 1, 4, 4))
        ...     rois = fluid.data("rois", [None, 8], lod_level=1)
        ...     out, _, _ = fluid.layers.roi_perspective_transform(x, rois, 2, 2)
        ...     corners = np.array([[1, 1, 2, 1, 2, 2, 1, 2]], "float32")  # clockwise
        ...     feed = {"rois": fluid.create_lod_tensor(corners, [[1]], fluid.CPUPlace())}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        >>> np.array(found).tolist()
        [[[[5.0, 6.0], [9.0, 10.0]]]]
    """
    layer = "roi_perspective_transform"
    for argument, variable in (("input", input), ("rois", rois)):
        check_variable_and_dtype(variable, argument, ("float32",), layer)
    attrs = {
        "transformed_height": transformed_height,
        "transformed_width": transformed_width,
        "spatial_scale": spatial_scale,
    }
    for argument, value in attrs.items():
        check_type(value, argument, float if argument == "spatial_scale" else int, layer)
    helper = LayerHelper(layer, name=name)
    dtypes = {"Out": input.dtype, "Mask": "int32", "TransformMatrix": input.dtype}
    dtypes |= {"Out2InIdx": "int32", "Out2InWeights": input.dtype}
    made = add_outputs(helper, {"X": input, "ROIs": rois}, dtypes, attrs)
    return made["Out"], made["Mask"], made["TransformMatrix"]


def _attrs(pooled_height: int, pooled_width: int, spatial_scale: float) -> dict[str, Any]:
    return {
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
        "spatial_scale": spatial_scale,
    }
