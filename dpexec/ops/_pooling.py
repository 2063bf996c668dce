"""Pooling of images ``(batch, channels, height, width)``, in two ways.

Few large windows (global and adaptive pooling) are reduced one by one. Many small ones are all
looked at together, one element of the window at a time, and rows and columns apart where that
is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.ir.opdef import require
from dpexec.ops._windows import Pair, padding, pair


@dataclass(frozen=True, slots=True)
class Axis:
    """Windows along one axis; window ``k`` covers ``kernel`` elements from ``k*stride - before``.

    Args:
        size: elements of the image, -1 if unknown.
        output: number of windows, -1 if unknown.
        kernel: elements of a window; 0 for the unequal windows of adaptive pooling.
        stride: distance of windows.
        before: padding before the first element.
    """

    size: int
    output: int
    kernel: int
    stride: int
    before: int

    @staticmethod
    def adaptive(size: int, output: int) -> Axis:
        """As many windows as wished, equal ones if possible."""
        if size > 0 and size % output == 0:
            return Axis(size, output, size // output, size // output, 0)
        return Axis(size, output, 0, 0, 0)

    @staticmethod
    def regular(size: int, kernel: int, stride: int, pads: Pair, ceil_mode: bool) -> Axis:
        """Windows of a size, at a distance."""
        if size < 0:
            return Axis(size, -1, kernel, stride, pads[0])
        room = size + sum(pads) - kernel
        require(room >= 0, f"the window of {kernel} is larger than the padded {size + sum(pads)}")
        output = (-(-room // stride) if ceil_mode else room // stride) + 1
        return Axis(size, output, kernel, stride, pads[0])

    def bounds(self, k: int) -> Pair:
        """The elements of the image that window ``k`` covers, padding left out."""
        if not self.kernel:
            return k * self.size // self.output, -(-(k + 1) * self.size // self.output)
        start = k * self.stride - self.before
        return max(start, 0), min(start + self.kernel, self.size)

    @property
    def reach(self) -> int:
        """Elements that all windows cover together, padding included."""
        return (self.output - 1) * self.stride + self.kernel

    @property
    def is_padded(self) -> bool:
        """Whether a window covers elements outside the image."""
        return bool(self.before) or self.reach > self.size

    def place(self, i: int) -> slice:
        """Where the windows' elements number ``i`` lie in the padded image."""
        return slice(i, i + (self.output - 1) * self.stride + 1, self.stride)


@dataclass(frozen=True, slots=True)
class Pooling:
    """Windows over an image.

    Args:
        rows: windows along the height.
        columns: windows along the width.
        exclusive: a mean counts only elements of the image.
    """

    rows: Axis
    columns: Axis
    exclusive: bool

    @staticmethod
    def of(
        size: Sequence[int],
        *,
        ksize: Sequence[int],
        strides: Sequence[int],
        paddings: Sequence[int],
        global_pooling: bool,
        exclusive: bool,
        ceil_mode: bool,
        adaptive: bool,
        padding_algorithm: str,
    ) -> Pooling:
        """The windows of an operator over images of a height and width."""
        height, width = size
        if global_pooling:
            return Pooling(Axis.adaptive(height, 1), Axis.adaptive(width, 1), True)
        kernel = pair("ksize", ksize)
        if adaptive:
            made = [Axis.adaptive(n, out) for n, out in zip(size, kernel, strict=True)]
            return Pooling(made[0], made[1], True)
        steps = pair("strides", strides)
        pads = padding((height, width), kernel, steps, paddings, padding_algorithm)
        return Pooling(
            Axis.regular(height, kernel[0], steps[0], pads[0], ceil_mode),
            Axis.regular(width, kernel[1], steps[1], pads[1], ceil_mode),
            exclusive,
        )

    @property
    def output(self) -> Pair:
        """Height and width of the result, -1 where unknown."""
        return self.rows.output, self.columns.output

    @property
    def _one_by_one(self) -> bool:
        rows, columns = self.rows, self.columns
        cells = rows.output * columns.output
        return not (rows.kernel and columns.kernel) or 4 * cells <= rows.kernel * columns.kernel

    def _cells(self) -> Any:
        """For every window its place in the output, its rows and its columns of the image."""
        for a in range(self.rows.output):
            for b in range(self.columns.output):
                yield a, b, slice(*self.rows.bounds(a)), slice(*self.columns.bounds(b))

    def _padded(self, xp: Any, x: Any, fill: float) -> Any:
        rows, columns = self.rows, self.columns
        if not (rows.is_padded or columns.is_padded):
            return x
        after = [max(0, axis.reach - axis.before - axis.size) for axis in (rows, columns)]
        pads = ((0, 0), (0, 0), (rows.before, after[0]), (columns.before, after[1]))
        return xp.pad(x, pads, constant_values=fill)

    def maximum(self, xp: Any, x: Any) -> Any:
        """The largest element of each window."""
        if self._one_by_one:
            out = xp.empty((*x.shape[:2], *self.output), dtype=x.dtype)
            for a, b, rows, columns in self._cells():
                out[:, :, a, b] = x[:, :, rows, columns].max(axis=(2, 3))
            return out
        return self._over_windows(xp, self._padded(xp, x, xp.finfo(x.dtype).min), xp.maximum)

    def mean(self, xp: Any, x: Any) -> Any:
        """The mean of each window."""
        if self._one_by_one:
            out = xp.empty((*x.shape[:2], *self.output), dtype=x.dtype)
            for a, b, rows, columns in self._cells():
                out[:, :, a, b] = x[:, :, rows, columns].sum(axis=(2, 3))
        else:
            out = self._over_windows(xp, self._padded(xp, x, 0.0), xp.add)
        out /= self._counts(xp, x.dtype)
        return out

    def _over_windows(self, xp: Any, x: Any, combine: Any) -> Any:
        """Combine the elements of each window: along the height, then along the width."""
        out = x[:, :, self.rows.place(0)]
        for i in range(1, self.rows.kernel):
            out = combine(out, x[:, :, self.rows.place(i)])
        x = out
        out = x[..., self.columns.place(0)]
        for j in range(1, self.columns.kernel):
            out = combine(out, x[..., self.columns.place(j)])
        return out.copy() if self.columns.kernel == 1 else out

    def _counts(self, xp: Any, dtype: Any) -> Any:
        """What the sum of each window is divided by, ``(output height, output width)``."""
        along = []
        for axis in (self.rows, self.columns):
            bounds = [axis.bounds(k) for k in range(axis.output)]
            sizes = [b - a if self.exclusive else axis.kernel for a, b in bounds]
            along.append(xp.asarray(sizes, dtype=dtype))
        return along[0][:, None] * along[1]

    def maximum_grad(self, xp: Any, x: Any, out: Any, d_out: Any) -> Any:
        """Where several elements are the largest, the first one gets the gradient."""
        if self._one_by_one:
            return self._maximum_grad_of_cells(xp, x, d_out)
        rows, columns = self.rows, self.columns
        padded = self._padded(xp, x, xp.finfo(x.dtype).min)
        d_padded = xp.zeros(padded.shape, dtype=x.dtype)
        free = xp.ones(out.shape, dtype=bool)
        apart = rows.stride >= rows.kernel and columns.stride >= columns.kernel
        for i in range(rows.kernel):
            for j in range(columns.kernel):
                hit = padded[:, :, rows.place(i), columns.place(j)] == out
                hit &= free
                free ^= hit
                d_place = d_padded[:, :, rows.place(i), columns.place(j)]
                if apart:
                    xp.multiply(d_out, hit, out=d_place)  # far faster than a masked copy
                else:
                    d_place += d_out * hit
        return self._cropped(d_padded)

    def _maximum_grad_of_cells(self, xp: Any, x: Any, d_out: Any) -> Any:
        d_x = xp.zeros(x.shape, dtype=x.dtype)
        images, channels = xp.arange(x.shape[0])[:, None], xp.arange(x.shape[1])
        for a, b, rows, columns in self._cells():
            window = x[:, :, rows, columns]
            first = window.reshape(*x.shape[:2], -1).argmax(axis=2)
            row, column = first // window.shape[3], first % window.shape[3]
            d_x[images, channels, row + rows.start, column + columns.start] += d_out[:, :, a, b]
        return d_x

    def mean_grad(self, xp: Any, d_out: Any) -> Any:
        """Every element of a window gets its share."""
        rows, columns = self.rows, self.columns
        share = d_out / self._counts(xp, d_out.dtype)
        if self._one_by_one:
            d_x = xp.zeros((*d_out.shape[:2], rows.size, columns.size), dtype=d_out.dtype)
            for a, b, row, column in self._cells():
                d_x[:, :, row, column] += share[:, :, a : a + 1, b : b + 1]
            return d_x
        widths, heights = (max(axis.reach, axis.before + axis.size) for axis in (columns, rows))
        wide = xp.zeros((*share.shape[:3], widths), dtype=d_out.dtype)
        for j in range(columns.kernel):
            wide[..., columns.place(j)] += share
        d_padded = xp.zeros((*share.shape[:2], heights, widths), dtype=d_out.dtype)
        for i in range(rows.kernel):
            d_padded[:, :, rows.place(i)] += wide
        return self._cropped(d_padded)

    def _cropped(self, padded: Any) -> Any:
        top, left = self.rows.before, self.columns.before
        return padded[:, :, top : top + self.rows.size, left : left + self.columns.size]
