"""``var_conv_2d``: convolutions of images that have different sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, passes_on, require
from dpexec.engine.ops._sequences import Ints, offsets_spec, sequence_count
from dpexec.engine.ops._shapes import require_float, same_dims

_SLOTS = ("X", "X@LOD", "ROW", "ROW@LOD", "COLUMN", "COLUMN@LOD", "W")


@dataclass(frozen=True, slots=True)
class _Window:
    """The window that is read for every position of a result; pairs are down and across.

    Args:
        channels: channels of the images.
        filters: channels of the results.
        kernel: size of the window, centred on the position.
        strides: distances between positions.
    """

    channels: int
    filters: int
    kernel: tuple[int, int]
    strides: tuple[int, int]

    def sizes(self, rows: Lod, columns: Lod) -> tuple[Ints, Ints]:
        """Sizes of all images and of their results, ``(images, 2)``."""
        before = np.stack([rows.lengths, columns.lengths], axis=1)
        return before, -(-before // np.array(self.strides))

    def indices(self, xp: Any, size: list[int]) -> tuple[Any, ...]:
        """Rows and columns of a padded image that a result reads, in five dimensions.

        Args:
            xp: ``numpy`` or ``cupy``.
            size: of the result.
        """
        down, across = (
            xp.arange(width)[:, None] + xp.arange(count) * step
            for width, count, step in zip(self.kernel, size, self.strides, strict=True)
        )
        return slice(None), down[:, None, :, None], across[None, :, None, :]

    def sections(self, element: tuple[int, ...], size: list[int]) -> Iterator[slice]:
        """Rows and columns of a padded image that one element of the kernel reads.

        Args:
            element: its row and column.
            size: of the result.
        """
        for start, count, step in zip(element, size, self.strides, strict=True):
            yield slice(start, start + count * step, step)

    def padded(self, xp: Any, before: list[int], after: list[int], dtype: Any) -> tuple[Any, Any]:
        """Zeros around an image, and the part of them that it lies in."""
        halves = [width // 2 for width in self.kernel]
        ends = [
            max(half + size, (count - 1) * step + width)
            for half, size, count, step, width in zip(
                halves, before, after, self.strides, self.kernel, strict=True
            )
        ]
        zeros = xp.zeros((self.channels, *ends), dtype)
        down, across = (slice(h, h + size) for h, size in zip(halves, before, strict=True))
        return zeros, zeros[:, down, across]


def _window(
    *,
    InputChannel: int = 1,
    OutputChannel: int = 1,
    KernelH: int = 1,
    KernelW: int = 1,
    StrideH: int = 1,
    StrideW: int = 1,
) -> _Window:
    return _Window(InputChannel, OutputChannel, (KernelH, KernelW), (StrideH, StrideW))


@passes_on(_window)
def _infer(
    x: Spec, x_lod: Spec | None, row: Spec, _: Spec | None, column: Spec, __: Spec | None,
    w: Spec, **attrs: Any,
) -> tuple[Spec, ...]:  # fmt: skip
    window = _window(**attrs)
    require_float(x)
    require(x.rank == 2 and dims_match(x.shape[1], 1), f"X {x} must be a column")
    require(
        min(window.channels, window.filters, *window.kernel, *window.strides) > 0,
        f"channels, kernel and strides must be positive, but are {attrs}",
    )
    shape = (window.filters, window.channels * window.kernel[0] * window.kernel[1])
    require(
        same_dims(w.shape, shape),
        f"W {w} must be {list(shape)}: OutputChannel, and InputChannel times the kernel",
    )
    lod = offsets_spec(sequence_count(x_lod))
    numbers = Spec((-1, 1), x.dtype)
    return numbers, numbers, lod, lod


def _sample(r: SampleRng, rows: Lod, columns: Lod, **attrs: int) -> Sample:
    window = _window(**attrs)
    lengths = window.channels * rows.lengths * columns.lengths
    width = window.channels * window.kernel[0] * window.kernel[1]
    inputs = {
        "X": r.normal((int(lengths.sum()), 1)),
        "X@LOD": Lod.of_lengths([lengths]),
        "ROW": np.zeros((rows.rows, 1)),
        "ROW@LOD": rows,
        "COLUMN": np.zeros((columns.rows, 1)),
        "COLUMN@LOD": columns,
        "W": r.normal((window.filters, width)),
    }
    return Sample(inputs, attrs, grad=("X", "W"))


def _samples(r: SampleRng) -> list[Sample]:
    rows, columns = Lod([[0, 2, 5]]), Lod([[0, 4, 6]])
    several = {"InputChannel": 2, "OutputChannel": 2}
    return [
        _sample(r, rows, columns, KernelH=3, KernelW=2, **several),
        _sample(r, columns, rows, KernelH=2, KernelW=3, StrideH=2, OutputChannel=2),
        _sample(r, rows, columns, StrideW=3, **several),
    ]


def _images(
    lod: Lod, rows: Lod, columns: Lod, window: _Window
) -> Iterator[tuple[slice, list[int], list[int]]]:
    """Numbers of every image, its size, and that of its result.

    Raises:
        ValueError: images do not have these sizes.
    """
    before, after = window.sizes(rows, columns)
    expected = window.channels * before.prod(axis=1)
    if not np.array_equal(lod.lengths, expected):
        raise ValueError(
            f"X must have sequences of {expected.tolist()} numbers, InputChannel times the lengths "
            f"of ROW's and COLUMN's, but they have {lod.lengths.tolist()}"
        )
    for span, size, made in zip(lod.spans(), before.tolist(), after.tolist(), strict=True):
        yield slice(*span), size, made


@op(
    "var_conv_2d",
    inputs=_SLOTS,
    outputs="Out Col Out@LOD Col@LOD",
    infer=_infer,
    samples=_samples,
    checks_values=True,
    operand_ulps=2,
)
@passes_on(_window)
def var_conv_2d(
    xp: Any, x: Any, lod: Lod, row: Any, row_lod: Lod, column: Any, column_lod: Lod, w: Any,
    **attrs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Every image convolved with ``W (OutputChannel, InputChannel * kernel)``, padded by zeros.

    ``X`` is a column; each of its sequences is an image with ``InputChannel`` channels, a row for
    every row of ROW's sequence and a column for every row of COLUMN's sequence. ``Out`` has the
    same form, with height and width divided by the strides and rounded up. ``Col`` has a matrix for
    every image, with the pixels that the window reads at all positions. Source: Paddle op
    ``var_conv_2d``.

    Raises:
        ValueError: sequences of X do not have these sizes.
    """
    window, made, read = _window(**attrs), [x[:0]], [x[:0]]
    for numbers, before, after in _images(lod, row_lod, column_lod, window):
        zeros, place = window.padded(xp, before, after, x.dtype)
        place[:] = x[numbers].reshape(place.shape)
        matrix = zeros[window.indices(xp, after)].reshape(w.shape[1], -1)
        read.append(matrix.reshape(-1, 1))
        made.append((w @ matrix).reshape(-1, 1))
    lods = [Lod.of_lengths([[len(part) for part in parts[1:]]]) for parts in (made, read)]
    return xp.concatenate(made), xp.concatenate(read), *lods


@var_conv_2d.grad(*_SLOTS, "Out", "Col", "Out@GRAD", outputs="X@GRAD W@GRAD", operand_ulps=2)
@passes_on(_window)
def var_conv_2d_grad(
    xp: Any, x: Any, lod: Lod, row: Any, row_lod: Lod, column: Any, column_lod: Lod, w: Any,
    out: Any, col: Any, d_out: Any, **attrs: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """The gradients of the filters, from the pixels they read, and of the images."""
    window = _window(**attrs)
    d_x, d_w, start = xp.empty_like(x), xp.zeros_like(w), 0
    for numbers, before, after in _images(lod, row_lod, column_lod, window):
        places = after[0] * after[1]
        part = slice(start * w.shape[1], (start + places) * w.shape[1])
        flow = d_out[start * len(w) : (start + places) * len(w)].reshape(len(w), places)
        start += places
        d_w += flow @ col[part].reshape(w.shape[1], places).T
        zeros, place = window.padded(xp, before, after, x.dtype)
        shares = (w.T @ flow).reshape(window.channels, *window.kernel, *after)
        for element in np.ndindex(*window.kernel):
            zeros[(slice(None), *window.sections(element, after))] += shares[:, *element]
        d_x[numbers] = place.reshape(-1, 1)
    return d_x, d_w
