"""Convolution as a matrix product.

Images are brought into the layout (channels, height, width, batch), where the columns of the
matrix are copied in long runs whatever the number of channels, and a step of the window moves
whole rows of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.ir.opdef import require
from dpexec.ops._windows import Padding, Pair, image_axes, padding, pair

MATRIX_LIMIT = 1 << 22
"""Elements of the matrix that one product takes: more images than that go in several."""


@dataclass(frozen=True, slots=True)
class Window:
    """How a kernel moves over an image.

    Args:
        size: height and width of the image, -1 where unknown.
        kernel: height and width of the kernel.
        strides: steps.
        dilations: distances between the elements of the kernel.
        pads: what is added around the image.
        groups: groups of channels that are convolved apart.
        layout: ``NCHW`` or ``NHWC``.
    """

    size: Pair
    kernel: Pair
    strides: Pair
    dilations: Pair
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
        groups: int,
        padding_algorithm: str,
        data_format: str,
    ) -> Window:
        """The window of an operator over images of a shape."""
        require(groups >= 1, f"groups must be positive, but is {groups}")
        _, (rows, columns) = image_axes(data_format)
        size, extent, steps = (
            (shape[rows], shape[columns]),
            pair("kernel", kernel),
            pair("strides", strides),
        )
        pads = padding(size, extent, steps, paddings, padding_algorithm)
        gaps = (1, 1) if padding_algorithm == "SAME" else pair("dilations", dilations)
        return Window(size, extent, steps, gaps, pads, groups, data_format)

    @property
    def output(self) -> Pair:
        """Height and width of what the convolution gives, -1 where unknown."""
        (top, bottom), (left, right) = self.pads
        return self._steps(0, top + bottom), self._steps(1, left + right)

    def _steps(self, axis: int, added: int) -> int:
        size = self.size[axis]
        if size < 0:
            return -1
        reach = self.dilations[axis] * (self.kernel[axis] - 1) + 1
        require(
            size + added >= reach,
            f"the kernel reaches over {reach} elements, but the padded image has {size + added}",
        )
        return (size + added - reach) // self.strides[axis] + 1

    def places(self, output: Pair) -> Iterator[tuple[int, int, slice, slice]]:
        """For each element of the kernel, the rows and columns of the image that it meets."""
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                yield (
                    i,
                    j,
                    _span(i * self.dilations[0], self.strides[0], output[0]),
                    _span(j * self.dilations[1], self.strides[1], output[1]),
                )

    def pad(self, xp: Any, images: Any) -> Any:
        """Images as (channels, padded height, padded width, batch)."""
        (top, bottom), (left, right) = self.pads
        height, width = self.size
        turned = self.turned(images)
        if not (top or bottom or left or right):
            return xp.ascontiguousarray(turned)
        shape = (turned.shape[0], height + top + bottom, width + left + right, turned.shape[3])
        padded = xp.zeros(shape, dtype=images.dtype)
        padded[:, top : top + height, left : left + width] = turned
        return padded

    def unpad(self, padded: Any) -> Any:
        """The inverse of :meth:`pad`, as a view."""
        top, left = self.pads[0][0], self.pads[1][0]
        inner = padded[:, top : top + self.size[0], left : left + self.size[1]]
        return self.images(inner)

    def turned(self, images: Any) -> Any:
        """Images seen as a (channels, height, width, batch) array."""
        return images.transpose((3, 1, 2, 0) if self.layout == "NHWC" else (1, 2, 3, 0))

    def grouped(self, xp: Any, images: Any) -> Any:
        """Images as a (groups, channels per group, positions * batch) array."""
        turned = xp.ascontiguousarray(self.turned(images))
        return turned.reshape(self.groups, turned.shape[0] // self.groups, -1)

    def images(self, array: Any) -> Any:
        """A (channels, height, width, batch) array seen as images in this layout."""
        return array.transpose((3, 1, 2, 0) if self.layout == "NHWC" else (3, 0, 1, 2))

    def unfold(self, xp: Any, padded: Any, output: Pair) -> Any:
        """The matrix (groups, channels * kernel, positions * batch) of all windows."""
        channels, batch = padded.shape[0], padded.shape[3]
        matrix = xp.empty((channels, *self.kernel, *output, batch), dtype=padded.dtype)
        for i, j, rows, columns in self.places(output):
            matrix[:, i, j] = padded[:, rows, columns]
        return matrix.reshape(self.groups, -1, output[0] * output[1] * batch)

    def fold(self, xp: Any, matrix: Any, output: Pair, batch: int) -> Any:
        """The transpose of :meth:`unfold`: every element of a window is added to its place."""
        (top, bottom), (left, right) = self.pads
        shape = (self.size[0] + top + bottom, self.size[1] + left + right, batch)
        matrix = matrix.reshape(-1, *self.kernel, *output, batch)
        padded = xp.zeros((matrix.shape[0], *shape), dtype=matrix.dtype)
        for i, j, rows, columns in self.places(output):
            padded[:, rows, columns] += matrix[:, i, j]
        return padded

    def chunks(self, batch: int, rows: int, output: Pair) -> Iterator[slice]:
        """The batch in pieces whose matrix with so many rows is not too large."""
        step = max(1, MATRIX_LIMIT // max(1, rows * output[0] * output[1]))
        for start in range(0, batch, step):
            yield slice(start, min(start + step, batch))


def _span(start: int, step: int, count: int) -> slice:
    return slice(start, start + step * (count - 1) + 1, step)
