"""Convolution of channels-last images as products with a matrix of all windows (im2col).

This is for machines without oneDNN. The matrix holds the windows of a few images at a time, so that
it stays in the cache. It has a row for every pixel of the result, with the pixels of its window row
by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.blas import sgemm, sgemm_address
from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.layouts import turn
from dpexec.engine.kernels.lowering import Code, Constant, Value
from dpexec.engine.kernels.machine import Count, Floats, Integers, as_word, kernel
from dpexec.engine.ops._convolution import Window

__all__ = ["emit"]

_ZERO, _ONE = np.float32(0), np.float32(1)
_MATRIX = 1 << 18
"""Elements of the matrix, about."""

# Numbers of a convolution, in the order of their table: channels, height and width of an image;
# filters; height and width of the result, and of the kernel; strides; dilations; padding above and
# to the left.


@inline
def _parts(numbers: Any, column: int) -> tuple[int, int]:
    """The number of parts in which a row of a window is copied, and the pixels of each.

    It is one part if all its pixels are neighbours inside the image, else one for each pixel.
    """
    left = column * numbers[9] - numbers[13]
    whole = numbers[11] == 1 and left >= 0 and left + numbers[7] <= numbers[2]
    return (1, numbers[7]) if whole else (numbers[7], 1)


@inline
def _unfold(numbers: Any, x: Any, image: int, matrix: Any, at: int) -> int:
    """Write the windows of an image as rows of the matrix; returns where the next ones begin."""
    channels, height, width = numbers[0], numbers[1], numbers[2]
    for row in range(numbers[4]):
        for column in range(numbers[5]):
            parts, length = _parts(numbers, column)
            for i in range(numbers[6]):
                y = row * numbers[8] + i * numbers[10] - numbers[12]
                for j in range(parts):
                    z = column * numbers[9] + j * numbers[11] - numbers[13]
                    if 0 <= y < height and 0 <= z < width:
                        start = ((image * height + y) * width + z) * channels
                        for c in range(length * channels):
                            matrix[at + c] = x[start + c]
                    else:
                        for c in range(length * channels):
                            matrix[at + c] = _ZERO
                    at += length * channels
    return at


@inline
def _fold(numbers: Any, dx: Any, image: int, matrix: Any, at: int) -> int:
    """Add rows of the matrix to the windows of an image; returns where the next ones begin.

    It adds pixel by pixel: longer sums would wait for writes of the window before.
    """
    channels, height, width = numbers[0], numbers[1], numbers[2]
    for row in range(numbers[4]):
        for column in range(numbers[5]):
            for i in range(numbers[6]):
                y = row * numbers[8] + i * numbers[10] - numbers[12]
                for j in range(numbers[7]):
                    z = column * numbers[9] + j * numbers[11] - numbers[13]
                    if 0 <= y < height and 0 <= z < width:
                        start = ((image * height + y) * width + z) * channels
                        for c in range(channels):
                            dx[start + c] += matrix[at + c]
                    at += channels
    return at


# Arguments of the kernels: address of sgemm, the table, images, images at a time, the images (or
# their gradient), the filters (or their gradient), the result (or its gradient), the matrix.


@kernel
def _forward(
    function: Count, numbers: Integers, images: Count, step: Count, x: Floats, weights: Count,
    outs: Count, matrix: Floats,
) -> int:  # fmt: skip
    """The result."""
    filters, pixels = numbers[3], numbers[4] * numbers[5]
    length = numbers[6] * numbers[7] * numbers[0]
    for first in range(0, images, step):
        end, at = min(first + step, images), 0
        for image in range(first, end):
            at = _unfold(numbers, x, image, matrix, at)
        rows = (end - first) * pixels
        out = outs + 4 * first * pixels * filters
        sgemm(
            function, 0, 1, rows, filters, length, _ONE, as_word(matrix), length,
            weights, length, _ZERO, out, filters,
        )  # fmt: skip
    return 0


@kernel
def _backward_data(
    function: Count, numbers: Integers, images: Count, step: Count, dx: Floats, weights: Count,
    d_outs: Count, matrix: Floats,
) -> int:  # fmt: skip
    """The gradient of the images."""
    filters, pixels = numbers[3], numbers[4] * numbers[5]
    length = numbers[6] * numbers[7] * numbers[0]
    for i in range(images * numbers[0] * numbers[1] * numbers[2]):
        dx[i] = _ZERO
    for first in range(0, images, step):
        end, at = min(first + step, images), 0
        rows = (end - first) * pixels
        d_out = d_outs + 4 * first * pixels * filters
        sgemm(
            function, 0, 0, rows, length, filters, _ONE, d_out, filters,
            weights, length, _ZERO, as_word(matrix), length,
        )  # fmt: skip
        for image in range(first, end):
            at = _fold(numbers, dx, image, matrix, at)
    return 0


@kernel
def _backward_weights(
    function: Count, numbers: Integers, images: Count, step: Count, x: Floats, weights: Count,
    d_outs: Count, matrix: Floats,
) -> int:  # fmt: skip
    """The gradient of the filters."""
    filters, pixels = numbers[3], numbers[4] * numbers[5]
    length = numbers[6] * numbers[7] * numbers[0]
    for first in range(0, images, step):
        end, at = min(first + step, images), 0
        for image in range(first, end):
            at = _unfold(numbers, x, image, matrix, at)
        rows = (end - first) * pixels
        d_out = d_outs + 4 * first * pixels * filters
        sgemm(
            function, 1, 0, filters, length, rows, _ONE, d_out, filters,
            as_word(matrix), length, _ONE if first else _ZERO, weights, length,
        )  # fmt: skip
    return 0


_KERNELS = {
    "forward": _forward,
    "backward_data": _backward_data,
    "backward_weights": _backward_weights,
}


def takes(window: Window) -> bool:
    """Whether there are kernels for such a convolution: images, in one group."""
    return sgemm_address() != 0 and window.groups == 1 and len(window.size) == 2


def emit(
    code: Code,
    what: str,
    window: Window,
    image: Value,
    weight: Value,
    out: Value,
) -> None:
    """Emit the calls for a convolution, or for a gradient of it.

    Args:
        code: takes the calls.
        what: ``forward``, ``backward_data`` or ``backward_weights``.
        window: the numbers of the convolution.
        image: the images, or their gradient, with their channels last.
        weight: the filters, or their gradient, as they are declared.
        out: the result, or its gradient, with its channels last.
    """
    filters, channels, *size = weight.shape
    output = window.output
    length = channels * size[0] * size[1]
    pixels = output[0] * output[1]
    step = max(1, min(image.shape[0], _MATRIX // (pixels * length)))
    tops = [before for before, _ in window.pads]
    numbers = [
        channels, *window.size, filters, *output, *size, *window.strides, *window.dilations, *tops,
    ]  # fmt: skip
    turned = code.scratch(filters, size[0] * size[1], channels)
    sizes = channels, size[0] * size[1]
    if what != "backward_weights":
        code.emit(turn, filters, *sizes, weight, turned)
    code.emit(
        _KERNELS[what], sgemm_address(), Constant(np.array(numbers, np.int64)), image.shape[0],
        step, image, turned, out, code.scratch(step * pixels, length),
    )  # fmt: skip
    if what == "backward_weights":
        code.emit(turn, filters, *sizes[::-1], turned, weight)
