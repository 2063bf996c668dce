"""Pooling of images ``(batch, channels, height, width)``, or volumes with a depth, in two ways.

A few large windows (global and adaptive pooling) are reduced one by one. Many small windows are
reduced together, one element of the window at a time, and one axis after another if the result is
the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.runs import add_at
from dpexec.engine.ir.opdef import require
from dpexec.engine.ops._windows import Pair, Sizes, padding, sizes


@dataclass(frozen=True, slots=True)
class Axis:
    """Windows along one axis; window ``k`` covers ``kernel`` elements from ``k*stride - before``.

    Args:
        size: elements of the image, -1 if unknown.
        output: number of windows, -1 if unknown.
        kernel: elements of a window; 0 for the unequal windows of adaptive pooling.
        stride: distance between windows.
        before: padding before the first element; negative if elements are skipped.
    """

    size: int
    output: int
    kernel: int
    stride: int
    before: int

    @staticmethod
    def adaptive(size: int, output: int) -> Axis:
        """A given number of windows, of equal size if possible."""
        if size > 0 and size % output == 0:
            return Axis(size, output, size // output, size // output, 0)
        return Axis(size, output, 0, 0, 0)

    @staticmethod
    def regular(size: int, kernel: int, stride: int, pads: Pair, ceil_mode: bool) -> Axis:
        """Windows of a given size and stride.

        If the window is larger than the image by less than the stride, there is one window, which
        covers the image: Paddle rounds the number of further windows towards 0.
        """
        if size < 0:
            return Axis(size, -1, kernel, stride, pads[0])
        padded = size + sum(pads)
        room = padded - kernel + (stride - 1 if ceil_mode else 0)
        require(room > -stride, f"the window of {kernel} is larger than the padded {padded}")
        return Axis(size, max(room, 0) // stride + 1, kernel, stride, pads[0])

    def bounds(self, k: int) -> Pair:
        """The elements of the image that window ``k`` covers, padding left out."""
        if not self.kernel:
            return k * self.size // self.output, -(-(k + 1) * self.size // self.output)
        start = k * self.stride - self.before
        return max(start, 0), min(start + self.kernel, self.size)

    def lengths(self, xp: Any) -> Any:
        """How many elements of the image each window covers."""
        windows = xp.arange(self.output)
        if not self.kernel:
            ends = -(-(windows + 1) * self.size // self.output)
            return ends - windows * self.size // self.output
        starts = windows * self.stride - self.before
        return xp.minimum(starts + self.kernel, self.size) - xp.maximum(starts, 0)

    @property
    def reach(self) -> int:
        """Elements that all windows cover together, padding included."""
        return (self.output - 1) * self.stride + self.kernel

    @property
    def is_padded(self) -> bool:
        """Whether a window covers elements outside the image."""
        return bool(self.before) or self.reach > self.size

    def place(self, i: int) -> slice:
        """The positions in the padded image of element ``i`` of all windows."""
        return slice(i, i + (self.output - 1) * self.stride + 1, self.stride)


@dataclass(frozen=True, slots=True)
class Pooling:
    """Windows over an image.

    Args:
        axes: windows along the height and the width, or the depth before them.
        exclusive: a mean counts only elements of the image.
    """

    axes: tuple[Axis, ...]
    exclusive: bool = True

    @staticmethod
    def of(
        size: Sequence[int],
        *,
        ksize: Sequence[int],
        strides: Sequence[int],
        paddings: Sequence[int],
        global_pooling: bool = False,
        adaptive: bool = False,
        exclusive: bool = True,
        ceil_mode: bool = False,
        padding_algorithm: str = "EXPLICIT",
    ) -> Pooling:
        """The windows of an operator over images of a size."""
        if global_pooling:  # windows of the image's size; if adaptive, that is the result's
            return Pooling(tuple(Axis.adaptive(n, n if adaptive else 1) for n in size))
        count = len(size)
        kernel = sizes("ksize", ksize, count)
        if adaptive:
            return Pooling(tuple(map(Axis.adaptive, size, kernel)))
        steps = sizes("strides", strides, count)
        pads = padding(tuple(size), kernel, steps, paddings, padding_algorithm)
        axes = (
            Axis.regular(n, k, step, added, ceil_mode)
            for n, k, step, added in zip(size, kernel, steps, pads, strict=True)
        )
        return Pooling(tuple(axes), exclusive)

    @property
    def output(self) -> Sizes:
        """Height and width of the result, -1 where unknown."""
        return tuple(axis.output for axis in self.axes)

    @property
    def _kernel(self) -> Sizes:
        return tuple(axis.kernel for axis in self.axes)

    @property
    def _one_by_one(self) -> bool:
        window = prod(self._kernel)
        return not window or 4 * prod(self.output) <= window

    def _cells(self) -> Iterator[tuple[Sizes, tuple[slice, ...]]]:
        """For every window its position in the output, and its section of the image."""
        for place in itertools.product(*map(range, self.output)):
            bounds = (axis.bounds(k) for axis, k in zip(self.axes, place, strict=True))
            yield place, tuple(slice(*pair) for pair in bounds)

    def _elements(self) -> Iterator[tuple[slice, ...]]:
        """For every element of the windows, its positions in the padded image."""
        for element in itertools.product(*map(range, self._kernel)):
            yield tuple(axis.place(i) for axis, i in zip(self.axes, element, strict=True))

    def _padded(self, xp: Any, x: Any, fill: float) -> Any:
        if not any(axis.is_padded for axis in self.axes):
            return x
        x = x[(..., *(slice(max(0, -a.before), None) for a in self.axes))]
        pads = [(max(0, a.before), max(0, a.reach - a.before - a.size)) for a in self.axes]
        return xp.pad(x, [(0, 0)] * (x.ndim - len(pads)) + pads, constant_values=fill)

    def maximum(self, xp: Any, x: Any) -> Any:
        """The largest element of each window."""
        if self._one_by_one:
            return self._over_cells(xp, x, xp.max)
        return self._over_windows(xp, self._padded(xp, x, xp.finfo(x.dtype).min), xp.maximum)

    def mean(self, xp: Any, x: Any) -> Any:
        """The mean of each window."""
        if self._one_by_one:
            out = self._over_cells(xp, x, xp.sum)
        else:
            out = self._over_windows(xp, self._padded(xp, x, 0.0), xp.add)
        out /= self._counts(xp, x.dtype)
        return out

    def _over_cells(self, xp: Any, x: Any, reduce: Any) -> Any:
        out = xp.empty((*x.shape[:2], *self.output), dtype=x.dtype)
        axes = tuple(range(2, x.ndim))
        for place, section in self._cells():
            out[(..., *place)] = reduce(x[(..., *section)], axis=axes)
        return out

    def _over_windows(self, xp: Any, x: Any, combine: Any) -> Any:
        """Combine the elements of each window along one axis after the other."""
        for number, axis in enumerate(self.axes):
            before = (slice(None),) * (2 + number)
            out = x[(*before, axis.place(0))]
            for i in range(1, axis.kernel):
                out = combine(out, x[(*before, axis.place(i))])
            x = out
        return x.copy() if self.axes[-1].kernel == 1 else x

    def _counts(self, xp: Any, dtype: Any) -> Any:
        """The divisor of each window's sum, in the shape of the output."""
        counts = xp.ones((), dtype=dtype)
        for axis in self.axes:
            along = axis.lengths(xp) if self.exclusive else xp.full(axis.output, axis.kernel)
            counts = counts[..., None] * along.astype(dtype)
        return counts

    def maximum_grad(self, xp: Any, x: Any, out: Any, d_out: Any) -> Any:
        """The gradient of :meth:`maximum`; of equal maxima, the first one gets it."""
        if self._one_by_one:
            return self.gathered(xp, x.shape, self.places(xp, x)[1], d_out)
        padded = self._padded(xp, x, xp.finfo(x.dtype).min)
        d_padded = xp.zeros(padded.shape, dtype=x.dtype)
        free = xp.ones(out.shape, dtype=bool)
        apart = all(axis.stride >= axis.kernel for axis in self.axes)
        for section in self._elements():
            hit = padded[(..., *section)] == out
            hit &= free
            free ^= hit
            d_place = d_padded[(..., *section)]
            if apart:
                xp.multiply(d_out, hit, out=d_place)  # far faster than a masked copy
            else:
                d_place += d_out * hit
        return self._cropped(xp, d_padded)

    def places(self, xp: Any, x: Any) -> tuple[Any, Any]:
        """The largest element of each window, and its position in the flattened image."""
        size = x.shape[2:]
        numbers = xp.arange(prod(size), dtype=np.int32).reshape(size)
        if not self._one_by_one:
            return self._places_of_windows(xp, x, numbers)
        out = xp.empty((*x.shape[:2], *self.output), dtype=x.dtype)
        place_of = xp.empty(out.shape, dtype=np.int32)
        for place, section in self._cells():
            cells = x[(..., *section)]
            window = cells.reshape(*x.shape[:2], prod(cells.shape[2:]))  # X may have no images
            first = window.argmax(axis=2)
            place_of[(..., *place)] = numbers[section].reshape(-1)[first]
            out[(..., *place)] = window.max(axis=2)
        return out, place_of

    def _places_of_windows(self, xp: Any, x: Any, numbers: Any) -> tuple[Any, Any]:
        padded = self._padded(xp, x, xp.finfo(x.dtype).min)
        numbers = self._padded(xp, numbers, -1)
        out = place_of = None
        for section in self._elements():
            value, number = padded[(..., *section)], numbers[section]
            if out is None:
                out, place_of = value.copy(), xp.array(xp.broadcast_to(number, value.shape))
                continue
            better = value > out
            out = xp.where(better, value, out)
            place_of = xp.where(better, number, place_of)
        return out, place_of

    @staticmethod
    def gathered(xp: Any, shape: Sequence[int], places: Any, d_out: Any) -> Any:
        """Gradients summed at the positions that :meth:`places` returned."""
        planes, size = shape[0] * shape[1], prod(shape[2:])
        d_x = xp.zeros(planes * size, dtype=d_out.dtype)
        starts = xp.arange(planes) * size
        starts = starts.reshape(*shape[:2], *[1] * (places.ndim - 2))
        add_at(xp, d_x, starts + places, d_out)
        return d_x.reshape(shape)

    def mean_grad(self, xp: Any, d_out: Any) -> Any:
        """The gradient of :meth:`mean`, divided equally among each window's elements."""
        share = d_out / self._counts(xp, d_out.dtype)
        if self._one_by_one:
            size = tuple(axis.size for axis in self.axes)
            d_x = xp.zeros((*d_out.shape[:2], *size), dtype=d_out.dtype)
            for place, section in self._cells():
                cell = tuple(slice(k, k + 1) for k in place)
                d_x[(..., *section)] += share[(..., *cell)]
            return d_x
        for number, axis in reversed(list(enumerate(self.axes))):
            before = (slice(None),) * (2 + number)
            shape = list(share.shape)
            shape[2 + number] = max(axis.reach, axis.before + axis.size)
            wide = xp.zeros(shape, dtype=d_out.dtype)
            for i in range(axis.kernel):
                wide[(*before, axis.place(i))] += share
            share = wide
        return self._cropped(xp, share)

    def _cropped(self, xp: Any, padded: Any) -> Any:
        inner = padded[(..., *(slice(max(0, a.before), a.before + a.size) for a in self.axes))]
        if min(a.before for a in self.axes) >= 0:
            return inner
        pads = [(max(0, -a.before), 0) for a in self.axes]
        return xp.pad(inner, [(0, 0)] * (inner.ndim - len(pads)) + pads)
