"""Windows that slide over images: padding and sizes for convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.ir.opdef import require

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]
"""What is added (top, bottom), (left, right)."""


def pair(name: str, value: Sequence[int]) -> Pair:
    """Two positive numbers, for height and width."""
    require(
        len(value) == 2 and min(value) > 0,
        f"{name} must be two positive numbers, but is {list(value)}",
    )
    return value[0], value[1]


def image_axes(layout: str) -> tuple[int, Pair]:
    """The axis of the channels and those of height and width."""
    require(
        layout in ("NCHW", "NHWC", "AnyLayout"),
        f"data_format must be NCHW or NHWC, but is {layout}",
    )
    return (3, (1, 2)) if layout == "NHWC" else (1, (2, 3))


def image_shape(batch: int, channels: int, size: Pair, layout: str) -> tuple[int, ...]:
    """The shape of images in a layout."""
    if layout == "NHWC":
        return (batch, *size, channels)
    return (batch, channels, *size)


def padding(
    size: Pair, kernel: Pair, strides: Pair, paddings: Sequence[int], algorithm: str
) -> Padding:
    """What is added around an image.

    Args:
        size: height and width; -1 where unknown.
        kernel: height and width of the window.
        strides: steps of the window.
        paddings: (height, width) or (top, bottom, left, right), for ``EXPLICIT``.
        algorithm: ``EXPLICIT``, ``VALID`` (nothing) or ``SAME`` (outputs of ``ceil(size /
            stride)``, what is odd at the end).
    """
    if algorithm == "VALID":
        return (0, 0), (0, 0)
    if algorithm == "SAME":
        totals = [
            0 if n < 0 else max((-(-n // s) - 1) * s + k - n, 0)
            for n, k, s in zip(size, kernel, strides, strict=True)
        ]
        top, left = totals[0] // 2, totals[1] // 2
        return (top, totals[0] - top), (left, totals[1] - left)
    require(
        algorithm == "EXPLICIT",
        f"padding_algorithm must be EXPLICIT, SAME or VALID, but is {algorithm}",
    )
    require(
        len(paddings) in (2, 4) and min(paddings) >= 0,
        f"paddings must be 2 or 4 numbers that are not negative, but are {list(paddings)}",
    )
    if len(paddings) == 2:
        return (paddings[0], paddings[0]), (paddings[1], paddings[1])
    return (paddings[0], paddings[1]), (paddings[2], paddings[3])
