"""``grid_sampler``: images read at given points, between the pixels by bilinear weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.runs import add_at
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import require_float, require_same_dtype


def _infer(x: Spec, grid: Spec) -> Spec:
    require_float(x)
    require_same_dtype(x, grid, "X and Grid")
    require(x.rank == 4, f"X {x} must be [samples, channels, height, width]")
    require(
        grid.rank == 4 and dims_match(grid.shape[3], 2) and dims_match(grid.shape[0], x.shape[0]),
        f"Grid {grid} must be [samples, height, width, 2] with the samples of X {x}",
    )
    require(
        all(map(dims_match, grid.shape[1:3], x.shape[2:])),
        f"Grid {grid} must have the height and width of X {x}",
    )
    return x


def _samples(r: SampleRng) -> list[Sample]:
    def grid(n: int, height: int, width: int, reach: float) -> Any:
        """Points between the pixels, some of them outside the image."""
        shape = (n, height, width)
        steps = np.array([width - 1, height - 1])
        cells = np.stack([r.integers(-1, size, shape) for size in (width, height)], axis=-1)
        return reach * ((cells + r.uniform(0.2, 0.8, (*shape, 2))) / steps * 2 - 1)

    identity = np.stack(np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 1.0]), axis=-1)[None]
    image = np.arange(6.0).reshape(1, 1, 2, 3)
    return [
        Sample({"X": r.normal((2, 3, 4, 5)), "Grid": grid(2, 4, 5, 1.0)}),
        Sample({"X": r.normal((1, 1, 3, 3)), "Grid": grid(1, 3, 3, 1.0)}),
        Sample({"X": image, "Grid": identity}, smooth=False, expected={"Output": image}),
    ]


def _corners(xp: Any, x: Any, grid: Any) -> Iterator[tuple[Any, Any, Any, Any, Any, Any]]:
    """For each of the four pixels around every point: row, column, whether inside, and weight.

    Two more arrays are the slopes of the weight along x and y, per pixel.
    """
    height, width = x.shape[2:]
    column, row = (
        (grid[..., i] + 1) * grid.dtype.type((size - 1) / 2)
        for i, size in ((0, width), (1, height))
    )
    left, top = xp.floor(column), xp.floor(row)
    for down in (0, 1):
        for right in (0, 1):
            i, j = (top + down).astype(np.int64), (left + right).astype(np.int64)
            inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
            across = column - left if right else 1 - (column - left)
            along = row - top if down else 1 - (row - top)
            yield (
                xp.clip(i, 0, height - 1),
                xp.clip(j, 0, width - 1),
                inside,
                across * along * inside,
                (1 if right else -1) * along * inside,
                (1 if down else -1) * across * inside,
            )


def _read(xp: Any, x: Any, rows: Any, columns: Any) -> Any:
    """Pixels ``(samples, height, width, channels)``."""
    samples = xp.arange(x.shape[0])[:, None, None]
    return x[samples, :, rows, columns]


@op("grid_sampler", inputs="X Grid", outputs="Output", infer=_infer,
    attrs={"use_cudnn": True}, samples=_samples)  # fmt: skip
def grid_sampler(xp: Any, x: Any, grid: Any) -> Any:
    """``x`` at the points of ``grid``: the weighted mean of the four pixels around, 0 outside.

    A point is ``(x, y)`` from -1 to 1 between the centres of the outermost pixels. Source: Paddle
    op ``grid_sampler``; Jaderberg et al. 2015.
    """
    out: Any = 0
    for rows, columns, _, weight, _, _ in _corners(xp, x, grid):
        out = out + _read(xp, x, rows, columns) * weight[..., None]
    return xp.ascontiguousarray(out.transpose(0, 3, 1, 2))


@grid_sampler.grad("X", "Grid", "Output@GRAD", outputs="X@GRAD Grid@GRAD", dense=True)
def grid_sampler_grad(
    xp: Any, x: Any, grid: Any, d_out: Any, *, needs: Sequence[bool] = (True, True)
) -> tuple[Any, Any]:
    """The gradients: of pixels by their weights, of points by the slopes of the weights."""
    height, width = x.shape[2:]
    flow = d_out.transpose(0, 2, 3, 1)
    first = xp.arange(x.shape[0])[:, None, None] * (height * width)
    d_x = xp.zeros((x.shape[0] * height * width, x.shape[1]), x.dtype) if needs[0] else None
    d_column = d_row = 0
    for rows, columns, _, weight, across, along in _corners(xp, x, grid):
        if d_x is not None:
            add_at(xp, d_x, first + rows * width + columns, flow * weight[..., None])
        if needs[1]:
            share = (_read(xp, x, rows, columns) * flow).sum(axis=-1)
            d_column, d_row = d_column + share * across, d_row + share * along
    d_grid = None
    if needs[1]:
        scales = [grid.dtype.type((size - 1) / 2) for size in (width, height)]
        d_grid = xp.stack([d_column * scales[0], d_row * scales[1]], axis=-1)
    if d_x is not None:
        d_x = d_x.reshape(x.shape[0], height, width, -1).transpose(0, 3, 1, 2)
        d_x = xp.ascontiguousarray(d_x)
    return d_x, d_grid
