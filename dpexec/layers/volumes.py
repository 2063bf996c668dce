"""Convolution and pooling of volumes: images with a depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.variable import Variable
from dpexec.layers.windows import (
    VOLUMES,
    Filters,
    adaptive_pooling,
    convolution,
    pooling,
    transposed_convolution,
)

__all__ = ["adaptive_pool3d", "conv3d", "conv3d_transpose", "pool3d"]


def conv3d(
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
    data_format: str = "NCDHW",
) -> Variable:
    """Convolution of volumes with trainable filters.

    Args:
        input: ``(N, C, D, H, W)``, or ``(N, D, H, W, C)`` as ``data_format`` says.
        num_filters: channels of the result.
        filter_size: depth, height and width of the filters, or one number for all.
        stride: steps between positions.
        padding: zeros around the volume: one number, three, six (before and after the depth, the
            height, the width), a pair per dimension, ``"SAME"`` or ``"VALID"``.
        dilation: distance between the points of a filter.
        groups: number of independent convolutions that the channels are split into.
        param_attr: attributes of the filters; by default normal with variance
            ``2 / (depth * height * width * C)``, the filter's size times the channels of the input.
        bias_attr: attributes of the bias; False for none.
        use_cudnn: ignored; accepted for compatibility.
        act: name of an activation.
        name: prefix of names.
        data_format: ``"NCDHW"`` or ``"NDHWC"``.

    Returns:
        ``(N, num_filters, D', H', W')`` in the same format. Source: Paddle op ``conv3d``.

    Raises:
        ValueError: arguments do not fit.

    See Also:
        :func:`conv3d_transpose`: larger volumes.
        :func:`pool3d`: without weights.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 8, 32, 32])
        ...     fluid.layers.conv3d(x, num_filters=8, filter_size=3).shape
        (-1, 8, 6, 30, 30)
    """
    filters = Filters(
        "conv3d", VOLUMES, data_format, num_filters, filter_size, stride, padding, dilation, groups
    )
    return convolution(
        filters, input,
        param_attr=param_attr, bias_attr=bias_attr, use_cudnn=use_cudnn, act=act, name=name,
    )  # fmt: skip


def conv3d_transpose(
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
    data_format: str = "NCDHW",
) -> Variable:
    """Transposed convolution of volumes (the gradient of a convolution as a layer).

    Args:
        input: ``(N, C, D, H, W)``, or ``(N, D, H, W, C)`` as ``data_format`` says.
        num_filters: channels of the result.
        output_size: depth, height and width of the result; with it ``filter_size`` can be left
            out.
        filter_size: depth, height and width of the filters, or one number for all.
        padding: as for :func:`conv3d`; cut off from the result.
        stride: steps between positions in the result.
        dilation: distance between the points of a filter.
        groups: number of independent convolutions that the channels are split into.
        param_attr: attributes of the filters.
        bias_attr: attributes of the bias; False for none.
        use_cudnn: ignored; accepted for compatibility.
        act: name of an activation.
        name: prefix of names.
        data_format: ``"NCDHW"`` or ``"NDHWC"``.

    Returns:
        ``(N, num_filters, D', H', W')`` in the same format. Source: Paddle op
        ``conv3d_transpose``.

    Raises:
        ValueError: arguments do not fit.

    See Also:
        :func:`conv3d`: for volumes.
        :func:`pool3d`: without weights.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 4, 4, 4])
        ...     fluid.layers.conv3d_transpose(x, num_filters=4, filter_size=3, stride=2).shape
        (-1, 4, 9, 9, 9)
    """
    filters = Filters(
        "conv3d_transpose", VOLUMES, data_format, num_filters, filter_size,
        stride, padding, dilation, groups,
    )  # fmt: skip
    return transposed_convolution(
        filters, input, output_size,
        param_attr=param_attr, bias_attr=bias_attr, use_cudnn=use_cudnn, act=act, name=name,
    )  # fmt: skip


def pool3d(
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
    data_format: str = "NCDHW",
) -> Variable:
    """Pooling: the maximum or the mean of every window of a volume.

    Args:
        input: ``(N, C, D, H, W)``, or ``(N, D, H, W, C)`` as ``data_format`` says.
        pool_size: depth, height and width of the windows, or one number for all.
        pool_type: ``"max"`` or ``"avg"``.
        pool_stride: steps between windows.
        pool_padding: as for :func:`conv3d`.
        global_pooling: one window that covers the volume.
        use_cudnn: ignored; accepted for compatibility.
        ceil_mode: round the result's size up, so that the last windows may reach beyond the input.
        name: prefix of names.
        exclusive: exclude the padding from means.
        data_format: ``"NCDHW"`` or ``"NDHWC"``.

    Returns:
        ``(N, C, D', H', W')`` in the same format. Source: Paddle op ``pool3d``.

    Raises:
        ValueError: arguments do not fit.
        TypeError: ``use_cudnn`` is not a bool.

    See Also:
        :func:`conv3d`: for volumes.
        :func:`conv3d_transpose`: larger volumes.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 8, 32, 32])
        ...     fluid.layers.pool3d(x, pool_size=2, pool_stride=2).shape
        (-1, 3, 4, 16, 16)
    """
    return pooling(
        "pool3d", VOLUMES, input, pool_size, pool_type, pool_stride, pool_padding, global_pooling,
        use_cudnn, ceil_mode, name, exclusive, data_format,
    )  # fmt: skip


def adaptive_pool3d(
    input: Variable,
    pool_size: int | Sequence[int],
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Any:
    """Pooling of volumes with windows chosen to give a result of a given size.

    Args:
        input: ``(N, C, D, H, W)``.
        pool_size: depth, height and width of the result, or one number for all.
        pool_type: ``"max"`` or ``"avg"``.
        require_index: also return positions of the maxima, counted through each volume.
        name: prefix of names.

    Returns:
        ``(N, C, depth, height, width)``, and int32 positions if required. Source: Paddle ops
        ``pool3d``, ``max_pool3d_with_index``.

    Raises:
        ValueError: positions are required of means, or the pool type is unknown.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 8, 8, 8])
        ...     fluid.layers.adaptive_pool3d(x, pool_size=2, pool_type="avg").shape
        (-1, 3, 2, 2, 2)
    """
    return adaptive_pooling(3, input, pool_size, pool_type, require_index, name)
