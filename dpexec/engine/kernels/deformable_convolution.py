"""Convolutions whose window elements are moved: windows as columns of a matrix, and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Constant, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.products import matrix_product
from dpexec.engine.ops._convolution import Window

__all__: list[str] = []

_ZERO, _ONE = np.float32(0), np.float32(1)
_CORNERS = 4

# Numbers of a convolution, in the order of their table: channels, height and width of an
# image; groups of channels that are moved alike; height and width of the result, and of the kernel;
# strides; dilations; padding above and to the left.


@inline
def _near(numbers: Any, offset: Any, at: int, element: int, places: Any, shares: Any) -> None:
    """The four pixels around what an element of every window reads.

    Args:
        numbers: the table.
        offset: by how much rows and columns are moved.
        at: where the rows of this element begin there; its columns lie behind them.
        element: the element's number.
        places: gets the pixels' numbers.
        shares: gets their weights, then how fast these grow with the row, and with the column.
    """
    height, width, high, wide = numbers[1], numbers[2], numbers[4], numbers[5]
    n = high * wide
    first = element // numbers[7] * numbers[10] - numbers[12]
    left = element % numbers[7] * numbers[11] - numbers[13]
    for i in range(n):
        y = offset[at + i] + np.float32(first + i // wide * numbers[8])
        x = offset[at + n + i] + np.float32(left + i % wide * numbers[9])
        reached = y > -1 and x > -1 and y < height and x < width
        y, x = (y, x) if reached else (_ZERO, _ZERO)
        top, side = np.floor(y), np.floor(x)
        down, right = y - top, x - side
        row, column = np.int64(top), np.int64(side)
        for corner in range(_CORNERS):
            low, far = corner // 2, corner % 2
            inside = reached and 0 <= row + low < height and 0 <= column + far < width
            along = down if low else _ONE - down
            across = right if far else _ONE - right
            here = corner * n + i
            places[here] = (row + low) * width + column + far if inside else 0
            shares[here] = along * across if inside else _ZERO
            shares[4 * n + here] = (across if low else -across) if inside else _ZERO
            shares[8 * n + here] = (along if far else -along) if inside else _ZERO


@kernel
def _columns(
    images: Count, numbers: Integers, x: Floats, offset: Floats, masked: Count, mask: Floats,
    places: Integers, shares: Floats, out: Floats,
) -> int:  # fmt: skip
    """A column for every window, and a row for every element of it, of every channel.

    Arguments: how many images; the table; images, offsets, whether there is a mask, the mask;
        memory for four numbers of every window, and for twelve; the matrices.
    """
    channels, size = numbers[0], numbers[1] * numbers[2]
    n, elements = numbers[4] * numbers[5], numbers[6] * numbers[7]
    alike = channels // numbers[3]
    for image in range(images):
        for group in range(numbers[3]):
            for element in range(elements):
                own = (image * numbers[3] + group) * elements + element
                _near(numbers, offset, 2 * own * n, element, places, shares)
                for c in range(group * alike, (group + 1) * alike):
                    plane = (image * channels + c) * size
                    at = ((image * channels + c) * elements + element) * n
                    for i in range(n):
                        out[at + i] = (
                            x[plane + places[i]] * shares[i]
                            + x[plane + places[n + i]] * shares[n + i]
                            + x[plane + places[2 * n + i]] * shares[2 * n + i]
                            + x[plane + places[3 * n + i]] * shares[3 * n + i]
                        )
                    if masked:
                        for i in range(n):
                            out[at + i] *= mask[own * n + i]
    return 0


@inline
def _clear(n: int, out: Any) -> None:
    for i in range(n):
        out[i] = _ZERO


@kernel
def _columns_grad(
    images: Count, numbers: Integers, x: Floats, offset: Floats, masked: Count, mask: Floats,
    places: Integers, shares: Floats, flows: Floats, d_columns: Floats, for_x: Count, dx: Floats,
    d_offset: Floats, d_mask: Floats,
) -> int:  # fmt: skip
    """The gradients of images, offsets and mask.

    Arguments: how many images; the table; images, offsets, whether there is a mask, the mask;
        memory for four numbers of every window, for twelve, and for five; the gradient of the
        matrices; whether the gradient of the images is wanted; gradients.
    """
    channels, size = numbers[0], numbers[1] * numbers[2]
    n, elements = numbers[4] * numbers[5], numbers[6] * numbers[7]
    alike = channels // numbers[3]
    if for_x:
        _clear(images * channels * size, dx)
    for image in range(images):
        for group in range(numbers[3]):
            for element in range(elements):
                own = (image * numbers[3] + group) * elements + element
                _near(numbers, offset, 2 * own * n, element, places, shares)
                _clear(5 * n, flows)
                for c in range(group * alike, (group + 1) * alike):
                    plane = (image * channels + c) * size
                    at = ((image * channels + c) * elements + element) * n
                    for i in range(n):
                        grad, whole = d_columns[at + i], _ZERO
                        factor = grad * mask[own * n + i] if masked else grad
                        for corner in range(_CORNERS):
                            here = corner * n + i
                            pixel = x[plane + places[here]]
                            whole += pixel * shares[here]
                            flows[here] += factor * pixel
                            if for_x:
                                dx[plane + places[here]] += factor * shares[here]
                        flows[4 * n + i] += grad * whole
                for i in range(n):
                    row = column = _ZERO
                    for corner in range(_CORNERS):
                        here = corner * n + i
                        row += flows[here] * shares[4 * n + here]
                        column += flows[here] * shares[8 * n + here]
                    d_offset[2 * own * n + i], d_offset[(2 * own + 1) * n + i] = row, column
                    if masked:
                        d_mask[own * n + i] = flows[4 * n + i]
    return 0


class _Operands:
    """What both directions read.

    Args:
        code: takes the calls.
        values: image, offset, mask if there is one, filter.
        attrs: of the operator.
    """

    def __init__(self, code: Code, values: list[Value], attrs: dict[str, Any]) -> None:
        self.image, self.offset, *mask, self.weight = values
        self.mask = mask[0] if mask else None
        shape, window = self.image.shape, Window.of(
            self.image.shape, self.weight.shape[2:], strides=attrs["strides"],
            paddings=attrs["paddings"], dilations=attrs["dilations"], data_format="NCHW",
        )  # fmt: skip
        pads = window.pads[0][0], window.pads[1][0]
        table = (
            *shape[1:], attrs["deformable_groups"], *window.output, *window.kernel, *window.strides,
            *window.dilations, *pads,
        )  # fmt: skip
        self.pixels = window.output[0] * window.output[1]
        self.length = shape[1] * window.kernel[0] * window.kernel[1]
        self.places = code.scratch(_CORNERS * self.pixels, dtype=np.int64)
        self.shares = code.scratch(3 * _CORNERS * self.pixels)
        self.head = (
            shape[0], Constant(np.array(table, np.int64)), self.image, self.offset,
            self.mask is not None, code.scratch(1) if self.mask is None else self.mask, self.places,
            self.shares,
        )  # fmt: skip

    def matrices(self, code: Code) -> Value:
        """Memory for a matrix for every image."""
        return code.scratch(self.image.shape[0], self.length, self.pixels)


def _takes(values: list[Value], attrs: dict[str, Any]) -> bool:
    fixed = all(isinstance(size, int) for value in values for size in value.shape[1:])
    return attrs["groups"] == 1 and fixed and single(*values)


_ATTRS = "strides", "paddings", "dilations", "groups", "deformable_groups"


@lowering("deformable_conv", "deformable_conv_v1", attrs=_ATTRS)
def deformable_conv(code: Code, *values: Value, **attrs: Any) -> Any:
    """The columns, and a product for every image."""
    *given, out = values
    if not _takes(given, attrs):
        return False
    operands = _Operands(code, given, attrs)
    columns, filters = operands.matrices(code), operands.weight.shape[0]
    code.emit(_columns, *operands.head, columns)
    matrix_product(
        code, operands.weight, columns, out, (filters, operands.pixels, operands.length),
        times=operands.image.shape[0], apart=(False, True, True),
    )  # fmt: skip


def _gradients(
    code: Code, given: list[Value], d_out: Value, outs: list[Value | None], attrs: dict[str, Any]
) -> Any:
    dx, d_offset, d_mask, d_weight = outs
    if not _takes([*given, d_out], attrs):
        return False
    operands = _Operands(code, given, attrs)
    columns, filters, times = (
        operands.matrices(code), operands.weight.shape[0], operands.image.shape[0],
    )  # fmt: skip
    if d_weight is not None:
        code.emit(_columns, *operands.head, columns)
        matrix_product(
            code, d_out, columns, d_weight, (filters, operands.length, operands.pixels),
            (False, True), times=times, apart=(True, True, False),
        )  # fmt: skip
    if dx is None and d_offset is None and d_mask is None:
        return None
    matrix_product(
        code, operands.weight, d_out, columns, (operands.length, operands.pixels, filters),
        (True, False), times=times, apart=(False, True, True),
    )  # fmt: skip
    code.emit(
        _columns_grad, *operands.head, code.scratch(5 * operands.pixels), columns, dx is not None,
        code.scratch(1) if dx is None else dx, d_offset or code.scratch(*operands.offset.shape),
        d_mask or code.scratch(*(operands.mask.shape if operands.mask else (1,))),
    )  # fmt: skip


@lowering("deformable_conv_grad", attrs=_ATTRS)
def deformable_conv_grad(code: Code, *values: Any, **attrs: Any) -> Any:
    """The columns again for the filters; those of their gradient for all else."""
    return _gradients(code, list(values[:4]), values[4], list(values[5:]), attrs)


@lowering("deformable_conv_v1_grad", attrs=_ATTRS)
def deformable_conv_v1_grad(code: Code, *values: Any, **attrs: Any) -> Any:
    """The columns again for the filters; those of their gradient for all else."""
    dx, d_offset, d_weight = values[4:]
    return _gradients(code, list(values[:3]), values[3], [dx, d_offset, None, d_weight], attrs)
