"""Convolution of images or volumes as a matrix product.

Images are first copied to the layout (channels, height, width, batch). There the columns of the
matrix are copied in long runs for any number of channels, and a step of the window moves by whole
rows of the batch. Volumes have a depth before the height.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.opdef import require
from dpexec.engine.ops._windows import (
    Padding,
    Pair,
    Sizes,
    has_channels_last,
    padding,
    size_of,
    sizes,
)

MATRIX_LIMIT = 1 << 22
"""The largest matrix of one product, in elements; larger batches are computed in pieces."""


def _for_one_step(size: int, kernel: int, stride: int, gap: int, pads: Pair) -> Pair:
    """Pad an axis that is shorter than the kernel by less than a stride, so that one window fits.

    Paddle rounds the number of further steps towards 0, so there is one window, padded with zeros.
    """
    lacking = gap * (kernel - 1) + 1 - size - sum(pads)
    return (pads[0], pads[1] + lacking) if size >= 0 and 0 < lacking < stride else pads


@dataclass(frozen=True, slots=True)
class Window:
    """How a kernel moves over an image.

    Args:
        size: height and width of the image, -1 where unknown.
        kernel: height and width of the kernel.
        strides: distances between windows.
        dilations: distances between the elements of the kernel.
        pads: padding around the image; negative values crop it.
        groups: groups of channels that are convolved separately.
        layout: ``NCHW`` or ``NHWC``, ``NCDHW`` or ``NDHWC``.
    """

    size: Sizes
    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    pads: Padding
    groups: int
    layout: str

    @staticmethod
    def of(
        shape: Sequence[int],
        kernel: Sequence[int],
        *,
        strides: Sequence[int],
        paddings: Sequence[int],
        dilations: Sequence[int],
        groups: int = 1,
        padding_algorithm: str = "EXPLICIT",
        data_format: str,
    ) -> Window:
        """The window of an operator over images of a shape."""
        require(groups >= 1, f"groups must be positive, but is {groups}")
        size = size_of(shape, data_format)
        axes = len(size)
        extent, steps = sizes("kernel", kernel, axes), sizes("strides", strides, axes)
        pads = padding(size, extent, steps, paddings, padding_algorithm)
        same = padding_algorithm == "SAME"
        gaps = (1,) * axes if same else sizes("dilations", dilations, axes)
        each = zip(size, extent, steps, gaps, pads, strict=True)
        pads = tuple(_for_one_step(*axis) for axis in each)
        return Window(size, extent, steps, gaps, pads, groups, data_format)

    @property
    def output(self) -> Sizes:
        """Height and width of the result, -1 where unknown."""
        return tuple(self._steps(axis) for axis in range(len(self.size)))

    def _steps(self, axis: int) -> int:
        size = self.size[axis]
        if size < 0:
            return -1
        size += sum(self.pads[axis])
        reach = self.dilations[axis] * (self.kernel[axis] - 1) + 1
        require(
            size >= reach,
            f"the kernel reaches over {reach} elements, but the padded image has {size}",
        )
        return (size - reach) // self.strides[axis] + 1

    def places(self, output: Sizes) -> Iterator[tuple[Sizes, tuple[slice, ...]]]:
        """For each element of the kernel, the section of the image that it is multiplied with."""
        for element in itertools.product(*map(range, self.kernel)):
            yield (
                element,
                tuple(
                    slice(i * gap, i * gap + step * (count - 1) + 1, step)
                    for i, gap, step, count in zip(
                        element, self.dilations, self.strides, output, strict=True
                    )
                ),
            )

    @property
    def _padded_size(self) -> Sizes:
        return tuple(n + sum(added) for n, added in zip(self.size, self.pads, strict=True))

    @property
    def crops(self) -> bool:
        """Whether a padding is negative, which crops the image."""
        return min(map(min, self.pads)) < 0

    @property
    def _kept(self) -> tuple[slice, ...]:
        """The section of the image that is part of the padded image."""
        pairs = zip(self.size, self.pads, strict=True)
        return tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in pairs)

    @property
    def _inner(self) -> tuple[slice, ...]:
        """The position of that section in the padded image."""
        pairs = zip(self._padded_size, self.pads, strict=True)
        return tuple(slice(max(0, a), n - max(0, b)) for n, (a, b) in pairs)

    def pad(self, xp: Any, images: Any) -> Any:
        """Images as (channels, padded height, padded width, batch)."""
        turned = self.turned(images)
        if not any(map(any, self.pads)):
            return xp.ascontiguousarray(turned)
        shape = (turned.shape[0], *self._padded_size, turned.shape[-1])
        padded = xp.zeros(shape, dtype=images.dtype)
        padded[(slice(None), *self._inner)] = turned[(slice(None), *self._kept)]
        return padded

    def unpad(self, xp: Any, padded: Any) -> Any:
        """The inverse of :meth:`pad`, as a view if possible; cropped pixels are 0."""
        inner = padded[(slice(None), *self._inner)]
        if not self.crops:
            return self.images(inner)
        images = xp.zeros((padded.shape[0], *self.size, padded.shape[-1]), dtype=padded.dtype)
        images[(slice(None), *self._kept)] = inner
        return self.images(images)

    def turned(self, images: Any) -> Any:
        """Images seen as a (channels, height, width, batch) array."""
        axes = tuple(range(images.ndim))
        last = has_channels_last(self.layout)
        return images.transpose((axes[-1], *axes[1:-1], 0) if last else (*axes[1:], 0))

    def grouped(self, xp: Any, images: Any) -> Any:
        """Images as a (groups, channels per group, positions * batch) array."""
        turned = xp.ascontiguousarray(self.turned(images))
        return turned.reshape(self.groups, turned.shape[0] // self.groups, -1)

    def images(self, array: Any) -> Any:
        """A (channels, height, width, batch) array seen as images in this layout."""
        axes = tuple(range(array.ndim))
        last = has_channels_last(self.layout)
        return array.transpose((axes[-1], *axes[1:-1], 0) if last else (axes[-1], *axes[:-1]))

    def unfold(self, xp: Any, padded: Any, output: Sizes) -> Any:
        """The matrix (groups, channels * kernel, positions * batch) of all windows."""
        channels, batch = padded.shape[0], padded.shape[-1]
        matrix = xp.empty((channels, *self.kernel, *output, batch), dtype=padded.dtype)
        for element, section in self.places(output):
            matrix[(slice(None), *element)] = padded[(slice(None), *section)]
        return matrix.reshape(self.groups, -1, prod(output) * batch)

    def fold(self, xp: Any, matrix: Any, output: Sizes, batch: int) -> Any:
        """The transpose of :meth:`unfold`: every element of a window is added to its place."""
        matrix = matrix.reshape(-1, *self.kernel, *output, batch)
        shape = (matrix.shape[0], *self._padded_size, batch)
        padded = xp.zeros(shape, dtype=matrix.dtype)
        for element, section in self.places(output):
            padded[(slice(None), *section)] += matrix[(slice(None), *element)]
        return padded

    def chunks(self, batch: int, rows: int, output: Sizes) -> Iterator[slice]:
        """Divide the batch into pieces whose matrix with ``rows`` rows is not too large."""
        step = max(1, MATRIX_LIMIT // max(1, rows * prod(output)))
        for start in range(0, batch, step):
            yield slice(start, min(start + step, batch))
