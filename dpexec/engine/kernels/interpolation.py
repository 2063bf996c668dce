"""Images in another size: elements along one axis after another are combined with weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpexec.engine.kernels.generate import single
from dpexec.engine.kernels.lowering import Code, Constant, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.ops._windows import has_channels_last, size_of
from dpexec.engine.ops.interpolate import axis_taps

__all__: list[str] = []

_ZERO = np.float32(0)
_METHODS = "nearest", "bilinear", "trilinear", "bicubic"


@kernel(apart=True)
def _combine(
    outer: Count, old: Count, new: Count, inner: Count, taps: Count, places: Integers,
    weights: Floats, x: Floats, out: Floats,
) -> None:  # fmt: skip
    """Weighted sums of rows.

    Arguments: blocks of rows, rows of a block before and after, width of rows, rows in a sum, their
        numbers and weights by result and then by term, rows, result.
    """
    for block in range(outer):
        for i in range(new):
            o = (block * new + i) * inner
            first = (block * old + places[i * taps]) * inner
            weight = weights[i * taps]
            if taps == 2:
                row, other = (block * old + places[i * taps + 1]) * inner, weights[i * taps + 1]
                for j in range(inner):
                    out[o + j] = x[first + j] * weight + x[row + j] * other
                continue
            for j in range(inner):
                out[o + j] = x[first + j] * weight
            for tap in range(i * taps + 1, (i + 1) * taps):
                row, weight = (block * old + places[tap]) * inner, weights[tap]
                for j in range(inner):
                    out[o + j] += x[row + j] * weight


@kernel(apart=True)
def _spread(
    outer: Count, old: Count, new: Count, inner: Count, taps: Count, places: Integers,
    weights: Floats, d_out: Floats, dx: Floats,
) -> None:  # fmt: skip
    """The gradient of rows from that of their weighted sums. Arguments: as for these."""
    for j in range(outer * old * inner):
        dx[j] = _ZERO
    for block in range(outer):
        for i in range(new):
            o = (block * new + i) * inner
            for tap in range(i * taps, (i + 1) * taps):
                row, weight = (block * old + places[tap]) * inner, weights[tap]
                for j in range(inner):
                    dx[row + j] += d_out[o + j] * weight


def _passes(
    x: Value, out: Value, layout: str, method: str, corners: bool, align_mode: int
) -> Iterator[tuple[list[Any], list[Any]]]:
    """For each axis the arguments of a kernel in front of arrays, and the shape behind it.

    Args:
        x: the images before.
        out: the images in the other size.
        layout: which dimensions are the size.
        method: how elements are combined.
        corners: whether the outermost elements of both coincide.
        align_mode: whether pixels are areas or points.
    """
    old, new = size_of(x.shape, layout), size_of(out.shape, layout)
    last = has_channels_last(layout) or x.channels_last
    channels = x.shape[-1 if has_channels_last(layout) else 1]
    shape = [x.shape[0], *old, channels] if last else [x.shape[0], channels, *old]
    for axis, taps in enumerate(axis_taps(old, new, x.dtype, method, corners, align_mode)):
        at = axis + (1 if last else 2)
        places = np.stack([index for index, _ in taps], axis=1)
        ones = np.ones(new[axis], np.float32)
        weights = np.stack([ones if weight is None else weight for _, weight in taps], axis=1)
        blocks, width = math.prod(shape[:at]), math.prod(shape[at + 1 :])
        tables = Constant(places.astype(np.int64)), Constant(weights.astype(np.float32))
        sizes = [blocks, old[axis], new[axis], width, len(taps), *tables]
        shape = [*shape[:at], new[axis], *shape[at + 1 :]]
        yield sizes, shape


def _declare(method: str) -> None:
    @lowering(f"{method}_interp", layout="own")
    def resize(
        code: Code, x: Value, size: Value | None, parts: list[Value], factor: Value | None,
        out: Value, *, data_layout: str, align_corners: bool, align_mode: int,
    ) -> Any:  # fmt: skip
        """One pass for every axis."""
        if size or parts or factor or not single(x):
            return False
        if has_channels_last(data_layout):
            x = code.laid(x, False)
        out.channels_last = x.channels_last and out.has_planes
        x = x if out.channels_last == x.channels_last else code.laid(x, False)
        passes = list(_passes(x, out, data_layout, method, align_corners, align_mode))
        for number, (sizes, shape) in enumerate(passes, 1):
            made = out if number == len(passes) else code.scratch(*shape)
            code.emit(_combine, *sizes, x, made)
            x = made

    @lowering(f"{method}_interp_grad", layout="own")
    def resize_grad(
        code: Code, x: Value, size: Value | None, parts: list[Value], factor: Value | None,
        d_out: Value, dx: Value, *, data_layout: str, align_corners: bool, align_mode: int,
    ) -> Any:  # fmt: skip
        """One pass for every axis, the last one first."""
        if size or parts or factor or not single(x, d_out):
            return False
        last = d_out.channels_last and dx.has_planes and not has_channels_last(data_layout)
        d_out, dx.channels_last = code.laid(d_out, last), last
        passes = list(_passes(dx, d_out, data_layout, method, align_corners, align_mode))
        for number in range(len(passes) - 1, -1, -1):
            made = code.scratch(*passes[number - 1][1]) if number else dx
            code.emit(_spread, *passes[number][0], d_out, made)
            d_out = made


for _method in _METHODS:
    _declare(_method)
