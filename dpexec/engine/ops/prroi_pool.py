"""``prroi_pool``: exact means of regions; gradients also go to the regions' coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._boxes import Numbers, to_host
from dpexec.engine.ops._rois import images, infer_pooled, pooled, pooled_grad, scaled


def _infer(
    x: Spec,
    rois: Spec,
    lod: Spec | None,
    counts: Spec | None,
    *,
    pooled_height: int = 1,
    pooled_width: int = 1,
) -> Spec:
    lod, counted = (None, counts.shape[0]) if counts else (lod, None)
    return infer_pooled(x, rois, lod, pooled_height, pooled_width, counted=counted)


def _samples(r: Any) -> list[Sample]:
    rois = np.array([[1.1, 1.5, 9.0, 10.3], [0.3, 0.1, 5.3, 4.2], [4.1, 2.3, 20.2, 15.1]])
    inputs = {"X": r.normal((2, 3, 6, 7)), "ROIs": rois}
    lod = {"ROIs@LOD": Lod([[0, 1, 3]])}
    bins = {"pooled_height": 2, "pooled_width": 3}
    return [
        Sample(inputs | lod, bins | {"spatial_scale": 0.5}),
        Sample(inputs | lod, {"spatial_scale": 0.25}),
        Sample(inputs | {"BatchRoINums": np.array([1, 2])}, bins | {"spatial_scale": 0.5}),
    ]


def _hat(way: Numbers) -> Numbers:
    """The weight of a pixel at a distance from it, by linear interpolation."""
    found: Numbers = np.maximum(1 - abs(way), 0)
    return found


def _hat_integral(way: Numbers) -> Numbers:
    """The integral of :func:`_hat` up to a distance."""
    near = np.clip(way, -1, 1)
    found: Numbers = np.where(near < 0, (near + 1) ** 2 / 2, 1 - (1 - near) ** 2 / 2)
    return found


class _Axis:
    """The weights of rows (or columns) in the bins of regions.

    Args:
        starts: starts of the regions, ``(regions,)``.
        ends: ends of the regions.
        size: number of rows.
        bins: number of bins per region.

    Attributes:
        weights: ``(regions, bins, size)``.
    """

    def __init__(self, starts: Numbers, ends: Numbers, size: int, bins: int) -> None:
        length = np.maximum(ends - starts, 0)[:, None, None] / bins
        self._number = np.arange(bins)[:, None]
        self._bins = bins
        self._empty = length <= 0
        self._length = np.where(self._empty, 1, length)
        low = starts[:, None, None] + self._number * length - np.arange(size)
        self._edges = low, low + length
        whole = _hat_integral(self._edges[1]) - _hat_integral(self._edges[0])
        self._weights = np.where(self._empty, 0, whole / self._length)
        self.weights = self._weights.astype(starts.dtype)

    def grads(self, d_weights: Numbers) -> tuple[Numbers, Numbers]:
        """The gradients of starts and ends, ``(regions,)`` each."""
        low, high = (_hat(edge) for edge in self._edges)
        first, second = self._number / self._bins, (self._number + 1) / self._bins
        shrinks = self._weights / self._bins
        by_start = high * (1 - second) - low * (1 - first) + shrinks
        by_end = high * second - low * first - shrinks
        found = [
            np.where(self._empty, 0, by / self._length * d_weights).sum(axis=(1, 2))
            for by in (by_start, by_end)
        ]
        return found[0], found[1]


def _axes(
    rois: Any, shape: tuple[int, ...], scale: float, bins: tuple[int, int]
) -> tuple[_Axis, _Axis]:
    """The axes of rows and of columns."""
    left, top, right, bottom = scaled(rois, scale).T
    return _Axis(top, bottom, shape[2], bins[0]), _Axis(left, right, shape[3], bins[1])


def _lod(lod: Lod | None, counts: Any) -> Lod | None:
    return lod if counts is None else Lod.of_lengths([to_host(counts).ravel()])


@op(
    "prroi_pool",
    inputs="X ROIs ROIs@LOD? BatchRoINums?",
    infer=_infer,
    samples=_samples,
)
def prroi_pool(
    xp: Any,
    x: Any,
    rois: Any,
    lod: Lod | None,
    counts: Any,
    *,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
) -> Any:
    """A map ``(pooled_height, pooled_width)`` for every region ``(left, top, right, bottom)``.

    A bin is the integral of the interpolated pixels over a part of the region, divided by its area.
    Each sequence has the regions of an image, or ``BatchRoINums`` has the number of regions per
    image. Source: Paddle op ``prroi_pool``; Jiang and others, 2018.
    """
    bins = (pooled_height, pooled_width)
    rows, columns = (axis.weights for axis in _axes(rois, x.shape, spatial_scale, bins))
    out = xp.empty((len(rois), x.shape[1], *bins), x.dtype)
    for image, part in images(_lod(lod, counts), None):
        out[part] = pooled(x[image], xp.asarray(rows[part]), xp.asarray(columns[part]))
    return out


@prroi_pool.grad(
    "X", "ROIs", "ROIs@LOD?", "BatchRoINums?", "Out", "Out@GRAD", outputs="X@GRAD ROIs@GRAD",
    dense=True,
)  # fmt: skip
def prroi_pool_grad(
    xp: Any,
    x: Any,
    rois: Any,
    lod: Lod | None,
    counts: Any,
    out: Any,
    d_out: Any,
    *,
    needs: tuple[bool, bool],
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
) -> tuple[Any, Any]:
    """The gradients of pixels and of regions; the latter from the integrand at the bins' edges."""
    bins = (pooled_height, pooled_width)
    down, across = _axes(rois, x.shape, spatial_scale, bins)
    d_x = xp.zeros_like(x)
    d_rows, d_columns = np.zeros_like(down.weights), np.zeros_like(across.weights)
    for image, part in images(_lod(lod, counts), None):
        rows, columns = xp.asarray(down.weights[part]), xp.asarray(across.weights[part])
        d_x[image] = pooled_grad(d_out[part], rows, columns)
        if needs[1]:
            by_columns = x[image] @ columns.swapaxes(1, 2)[:, None]
            d_rows[part] = to_host((d_out[part] @ by_columns.swapaxes(2, 3)).sum(axis=1))
            by_rows = rows[:, None] @ x[image]
            d_columns[part] = to_host((d_out[part].swapaxes(2, 3) @ by_rows).sum(axis=1))
    if not needs[1]:
        return d_x, None
    (top, bottom), (left, right) = down.grads(d_rows), across.grads(d_columns)
    d_rois = np.stack([left, top, right, bottom], axis=1) * spatial_scale
    return d_x, xp.asarray(d_rois.astype(x.dtype))
