"""Small maps of regions of images: the greatest pixels of bins, or means of points in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, Number, kernel

__all__: list[str] = []

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_MOST_POINTS = 1 << 20

# Arguments that all kernels have: images; channels, height and width of an image; bins down and
# across; offsets of the regions of images; regions; from regions to pixels.


@inline
def _between(value: Any, size: int) -> Any:
    """A number between 0 and a size; NaN becomes 0."""
    value = value if value > 0 else value * 0
    return np.int64(min(value, size)) if value == value else 0


@inline
def _rounded(edge: Any) -> Any:
    """Halves away from 0."""
    whole = np.floor(abs(edge) + _HALF)
    return whole if edge > 0 else -whole


@inline
def _bins(start: Any, end: Any, size: int, bins: int, spans: Any, at: int) -> None:
    """The first pixel of every bin of a region, and the one after the last."""
    first = _rounded(start)
    length = max(_rounded(end) - first + _ONE, _ONE) / np.float32(bins)
    for number in range(bins):
        spans[at + 2 * number] = _between(np.floor(np.float32(number) * length) + first, size)
        high = np.ceil(np.float32(number + 1) * length) + first
        spans[at + 2 * number + 1] = _between(high, size)


@kernel
def _greatest(
    images: Count, channels: Count, height: Count, width: Count, down: Count, across: Count,
    offsets: Integers, rois: Floats, scale: Number, x: Floats, spans: Integers, out: Floats,
    places: Integers,
) -> int:  # fmt: skip
    """The greatest pixel of every bin, 0 if it has none, and its number, or -1.

    Further arguments: images, memory for the spans of the bins of a region, results.
    """
    for image in range(images):
        for region in range(offsets[image], offsets[image + 1]):
            left, top = rois[4 * region] * scale, rois[4 * region + 1] * scale
            right, bottom = rois[4 * region + 2] * scale, rois[4 * region + 3] * scale
            _bins(top, bottom, height, down, spans, 0)
            _bins(left, right, width, across, spans, 2 * down)
            for c in range(channels):
                plane = (image * channels + c) * height * width
                at = (region * channels + c) * down * across
                for i in range(down):
                    for j in range(across):
                        best, place = _ZERO, -1
                        side = 2 * (down + j)
                        for row in range(spans[2 * i], spans[2 * i + 1]):
                            for column in range(spans[side], spans[side + 1]):
                                value = x[plane + row * width + column]
                                if place < 0 or value > best or (value != value and best == best):
                                    best, place = value, row * width + column
                        out[at + i * across + j], places[at + i * across + j] = best, place
    return 0


@kernel
def _greatest_grad(
    images: Count, channels: Count, size: Count, bins: Count, offsets: Integers, places: Integers,
    d_out: Floats, dx: Floats,
) -> int:  # fmt: skip
    """The gradient of every bin, added to its greatest pixel.

    Arguments: images, channels, pixels of an image, bins of a region, offsets of the regions of
        images, numbers of pixels, gradients.
    """
    for i in range(images * channels * size):
        dx[i] = _ZERO
    for image in range(images):
        for region in range(offsets[image], offsets[image + 1]):
            for c in range(channels):
                for at in range((region * channels + c) * bins, (region * channels + c + 1) * bins):
                    if places[at] >= 0:
                        dx[(image * channels + c) * size + places[at]] += d_out[at]
    return 0


# ---- means of points


@inline
def _weigh(
    start: Any, end: Any, size: Any, bins: int, how: Any, weights: Any, spans: Any, at: int
) -> None:
    """How much every pixel along an axis counts in every bin, and which of them count at all.

    Args:
        start: where the region begins.
        end: where it ends.
        size: pixels along the axis.
        bins: of the region.
        how: points of each bin, 0 for as many as it has pixels; whether regions may be smaller
            than a pixel.
        weights: gets a number for every pixel, bin by bin.
        spans: gets the first pixel of every bin that counts, and the one after the last.
        at: where the spans begin.
    """
    ratio, aligned = how
    length = (end - start if aligned else max(end - start, _ONE)) / np.float32(bins)
    points = ratio if ratio > 0 else _between(np.ceil(length), _MOST_POINTS)
    share = max(points, 1)
    for number in range(bins):
        row, low, high = number * size, size, 0 * size
        for j in range(size):
            weights[row + j] = _ZERO
        for point in range(points):
            inside = (np.float32(point) + _HALF) * length / np.float32(share)
            place = start + np.float32(number) * length + inside
            if place >= -1 and place <= size:
                place = np.float64(min(max(place, _ZERO), np.float32(size - 1)))
                first = np.int64(place)
                weights[row + first] += np.float32((first + 1 - place) / share)
                if first + 1 < size:
                    weights[row + first + 1] += np.float32((place - first) / share)
                low, high = min(low, first), max(high, min(first + 2, size))
        spans[at + 2 * number], spans[at + 2 * number + 1] = low, high


@kernel
def _means(
    images: Count, channels: Count, height: Count, width: Count, down: Count, across: Count,
    offsets: Integers, rois: Floats, scale: Number, ratio: Count, aligned: Count, rows: Floats,
    columns: Floats, row: Floats, spans: Integers, x: Floats, out: Floats, back: Count,
) -> int:  # fmt: skip
    """Weighted sums of the pixels of every bin, or the gradient of the pixels.

    Further arguments: points of a bin; whether regions may be smaller than a pixel; memory for
        weights down and across, for a row, and for spans of bins; images and results, or their
        gradients; whether it is the gradient.
    """
    shift = _HALF if aligned else _ZERO
    if back:
        for i in range(images * channels * height * width):
            x[i] = _ZERO
    for image in range(images):
        for region in range(offsets[image], offsets[image + 1]):
            left, top = rois[4 * region] * scale - shift, rois[4 * region + 1] * scale - shift
            right = rois[4 * region + 2] * scale - shift
            bottom = rois[4 * region + 3] * scale - shift
            _weigh(top, bottom, height, down, (ratio, aligned), rows, spans, 0)
            _weigh(left, right, width, across, (ratio, aligned), columns, spans, 2 * down)
            for c in range(channels):
                plane = (image * channels + c) * height * width
                at = (region * channels + c) * down * across
                for i in range(down):
                    first, last = spans[2 * i], spans[2 * i + 1]
                    for k in range(width):
                        row[k] = _ZERO
                    if not back:
                        for h in range(first, last):
                            weight = rows[i * height + h]
                            for k in range(width):
                                row[k] += weight * x[plane + h * width + k]
                    for j in range(across):
                        total, place = _ZERO, at + i * across + j
                        for k in range(spans[2 * (down + j)], spans[2 * (down + j) + 1]):
                            if back:
                                row[k] += out[place] * columns[j * width + k]
                            else:
                                total += row[k] * columns[j * width + k]
                        if not back:
                            out[place] = total
                    if back:
                        for h in range(first, last):
                            weight = rows[i * height + h]
                            for k in range(width):
                                x[plane + h * width + k] += weight * row[k]
    return 0


def _counted(lod: Value | None, boundaries: Value | None) -> Value | None:
    """Where the regions of images begin, if it is known for sure."""
    return lod if boundaries is None else None


@lowering("roi_pool")
def roi_pool(
    code: Code, x: Value, rois: Value, lod: Value | None, boundaries: Value | None, out: Value,
    places: Value | None, *, spatial_scale: float, pooled_height: int, pooled_width: int,
) -> Any:  # fmt: skip
    """One pass over the regions."""
    offsets, bins = _counted(lod, boundaries), (pooled_height, pooled_width)
    if offsets is None or not single(x, rois):
        return False
    spans = code.scratch(2 * sum(bins), dtype=np.int64)
    places = places or code.scratch(*out.shape, dtype=np.int64)
    code.emit(
        _greatest, *x.shape, *bins, offsets, rois, float(spatial_scale), x, spans, out, places
    )


@lowering("roi_pool_grad")
def roi_pool_grad(
    code: Code, x: Value, rois: Value, lod: Value | None, boundaries: Value | None, places: Value,
    d_out: Value, dx: Value,
) -> Any:  # fmt: skip
    """One pass over the regions."""
    offsets = _counted(lod, boundaries)
    if offsets is None or not single(x, d_out):
        return False
    images, channels, height, width = x.shape
    bins = d_out.shape[2] * d_out.shape[3]
    code.emit(_greatest_grad, images, channels, height * width, bins, offsets, places, d_out, dx)


def _emit_means(
    code: Code, ends: tuple[Value, Value], rois: Value, offsets: Value | None, back: bool,
    spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    x, out = ends
    if offsets is None or not single(x, rois, out):
        return False
    height, width = x.shape[2:]
    rows = code.scratch(pooled_height, height), code.scratch(pooled_width, width)
    spans = code.scratch(2 * (pooled_height + pooled_width), dtype=np.int64)
    code.emit(
        _means, *x.shape, pooled_height, pooled_width, offsets, rois, float(spatial_scale),
        max(sampling_ratio, 0), aligned, *rows, code.scratch(width), spans, x, out, back,
    )  # fmt: skip


_ATTRS = "spatial_scale", "pooled_height", "pooled_width", "sampling_ratio", "aligned"


@lowering("roi_align", attrs=_ATTRS)
def roi_align(
    code: Code, x: Value, rois: Value, lod: Value | None, boundaries: Value | None, out: Value,
    **attrs: Any,
) -> Any:  # fmt: skip
    """One pass over the regions: rows of pixels are added up, then elements of the sums."""
    return _emit_means(code, (x, out), rois, _counted(lod, boundaries), False, **attrs)


@lowering("roi_align_grad", attrs=_ATTRS)
def roi_align_grad(
    code: Code, x: Value, rois: Value, lod: Value | None, boundaries: Value | None, d_out: Value,
    dx: Value, **attrs: Any,
) -> Any:  # fmt: skip
    """One pass over the regions, the other way round."""
    return _emit_means(code, (dx, d_out), rois, _counted(lod, boundaries), True, **attrs)
