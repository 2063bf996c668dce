"""``affine_grid``: coordinates of an image's pixels in another image, by an affine map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import require_float


def _infer(theta: Spec, shape: Spec | None, *, output_shape: Sequence[int] = ()) -> Spec:
    require_float(theta, "Theta")
    require(
        theta.rank == 3 and dims_match(theta.shape[1], 2) and dims_match(theta.shape[2], 3),
        f"Theta {theta} must be [samples, 2, 3]",
    )
    require(
        shape is not None or len(output_shape) == 4,
        f"output_shape is {list(output_shape)}, but must be samples, channels, height and width",
    )
    require(shape is None or shape.rank == 1, f"OutputShape {shape} must be a vector")
    # Paddle leaves height and width open even where the attribute tells them.
    return theta.replace(shape=(theta.shape[0], -1, -1, 2))


def _points(xp: Any, shape: Any, output_shape: Sequence[int], dtype: Any) -> Any:
    """``(x, y, 1)`` of every pixel, x and y from -1 to 1: ``(height * width, 3)``."""
    numbers = output_shape if shape is None else [int(n) for n in shape.reshape(-1)]
    height, width = numbers[2:]
    y, x = xp.meshgrid(
        xp.linspace(-1, 1, height, dtype=dtype), xp.linspace(-1, 1, width, dtype=dtype),
        indexing="ij",
    )  # fmt: skip
    return xp.stack([x, y, xp.ones_like(x)], axis=-1).reshape(-1, 3), (height, width)


@op(
    "affine_grid",
    inputs="Theta OutputShape?",
    outputs="Output",
    infer=_infer,
    attrs={"use_cudnn": True},
    samples=lambda r: [
        Sample({"Theta": r.normal((2, 2, 3))}, {"output_shape": [2, 3, 4, 5]}),
        Sample({"Theta": r.normal((1, 2, 3))}, {"output_shape": [1, 1, 2, 3]}),
        Sample({"Theta": r.normal((2, 2, 3)), "OutputShape": np.array([2, 3, 3, 4], np.int32)}),
    ],
    host_inputs="OutputShape",
)
def affine_grid(xp: Any, theta: Any, shape: Any = None, *, output_shape: Sequence[int] = ()) -> Any:
    """``theta @ (x, y, 1)`` for the pixels of images of a shape: ``(samples, height, width, 2)``.

    Coordinates go from -1 to 1 between the centres of the outermost pixels. ``OutputShape``
    replaces the attribute. Source: Paddle op ``affine_grid``; Jaderberg et al. 2015.
    """
    points, (height, width) = _points(xp, shape, output_shape, theta.dtype)
    return (points @ theta.transpose(0, 2, 1)).reshape(theta.shape[0], height, width, 2)


@affine_grid.grad(
    "OutputShape? Output@GRAD",
    outputs="Theta@GRAD",
    infer=lambda shape, d_out, **_: d_out.replace(shape=(d_out.shape[0], 2, 3)),
)
def affine_grid_grad(xp: Any, shape: Any, d_out: Any, *, output_shape: Sequence[int] = ()) -> Any:
    """The sum over the pixels of the gradient times ``(x, y, 1)``."""
    points, _ = _points(xp, shape, output_shape, d_out.dtype)
    return d_out.reshape(d_out.shape[0], -1, 2).transpose(0, 2, 1) @ points
