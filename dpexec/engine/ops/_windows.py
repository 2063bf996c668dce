"""Windows that slide over images or volumes: padding and sizes for convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.ir.opdef import require

Pair = tuple[int, int]
Sizes = tuple[int, ...]
"""A number for each axis of an image (height, width) or a volume (depth, height, width)."""
Padding = tuple[Pair, ...]
"""Padding before and after, along each axis; negative numbers crop."""

_CHANNELS_FIRST, _CHANNELS_LAST = ("NCHW", "NCDHW", "AnyLayout"), ("NHWC", "NDHWC")


def sizes(name: str, value: Sequence[int], count: int) -> Sizes:
    """A positive number for each of ``count`` axes."""
    require(
        len(value) == count and min(value) > 0,
        f"{name} must be {count} positive numbers, but is {list(value)}",
    )
    return tuple(value)


def has_channels_last(layout: str) -> bool:
    """Whether the channels are the last axis and not the second."""
    require(
        layout in _CHANNELS_FIRST + _CHANNELS_LAST,
        f"data_format must be NCHW or NHWC, NCDHW or NDHWC for volumes, but is {layout}",
    )
    return layout in _CHANNELS_LAST


def channels_of(shape: Sequence[int], layout: str) -> int:
    """The number of channels of images."""
    return shape[-1 if has_channels_last(layout) else 1]


def size_of(shape: Sequence[int], layout: str) -> Sizes:
    """Height and width of images, or depth, height and width of volumes."""
    return tuple(shape[1:-1] if has_channels_last(layout) else shape[2:])


def image_shape(batch: int, channels: int, size: Sizes, layout: str) -> Sizes:
    """The shape of images in a layout."""
    if has_channels_last(layout):
        return (batch, *size, channels)
    return (batch, channels, *size)


def padding(
    size: Sizes, kernel: Sizes, strides: Sizes, paddings: Sequence[int], algorithm: str
) -> Padding:
    """The padding around an image.

    Args:
        size: size of the image; -1 where unknown.
        kernel: size of the window.
        strides: steps of the window.
        paddings: for ``EXPLICIT``, a number per axis, or a number before and one after each axis;
            negative numbers crop.
        algorithm: ``EXPLICIT``, ``VALID`` (no padding) or ``SAME`` (``ceil(size / stride)``
            outputs, with an odd element at the end).
    """
    count = len(size)
    if algorithm == "VALID":
        return ((0, 0),) * count
    if algorithm == "SAME":
        totals = [
            0 if n < 0 else max((-(-n // s) - 1) * s + k - n, 0)
            for n, k, s in zip(size, kernel, strides, strict=True)
        ]
        return tuple((total // 2, total - total // 2) for total in totals)
    require(
        algorithm == "EXPLICIT",
        f"padding_algorithm must be EXPLICIT, SAME or VALID, but is {algorithm}",
    )
    require(
        len(paddings) in (count, 2 * count),
        f"paddings must be {count} or {2 * count} numbers, but are {list(paddings)}",
    )
    if len(paddings) == count:
        return tuple((both, both) for both in paddings)
    return tuple(zip(paddings[::2], paddings[1::2], strict=True))
