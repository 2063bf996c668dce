"""``unpool``: puts the maxima of ``max_pool2d_with_index`` back at their positions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.ranges import require_between
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._shapes import require_float, require_shape_of
from dpexec.engine.ops._windows import Sizes, sizes


def _infer(
    x: Spec,
    indices: Spec,
    *,
    ksize: Sequence[int],
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    unpooling_type: str,
) -> Spec:
    require(x.rank == 4, f"X {x} must be [batch, channels, height, width]")
    require_float(x)
    require(indices.dtype == VarType.INT32, f"Indices {indices} must hold int32")
    require_shape_of(indices, x, "Indices", "X")
    require(unpooling_type == "max", f"unpooling_type must be max, but is {unpooling_type!r}")
    size = _size(x.shape[2:], ksize, strides, paddings)
    return x.replace(shape=(*x.shape[:2], *size), lod_level=0)


def _size(
    size: Sequence[int], ksize: Sequence[int], strides: Sequence[int], paddings: Sequence[int]
) -> Sizes:
    """Height and width of the images that were pooled, -1 where unknown."""
    kernel, steps = sizes("ksize", ksize, 2), sizes("strides", strides, 2)
    require(len(paddings) == 2, f"paddings must be 2 numbers, but are {list(paddings)}")
    found = tuple(
        -1 if n < 0 else (n - 1) * step - 2 * pad + k
        for n, k, step, pad in zip(size, kernel, steps, paddings, strict=True)
    )
    require(
        all(n != 0 and n >= -1 for n in found),
        f"windows of {kernel} at steps of {steps} with paddings {list(paddings)} leave no image",
    )
    return found


def _samples(r: SampleRng) -> list[Sample]:
    def pooled(places: Any) -> dict[str, Any]:
        places = np.asarray(places, np.int32)
        return {"X": r.normal(places.shape), "Indices": places}

    return [
        Sample(
            {
                "X": np.array([[[[1.0, 2.0]]]]),
                "Indices": np.array([[[[1, 6]]]], np.int32),
            },
            {"ksize": [2, 2], "strides": [2, 2], "unpooling_type": "max"},
            expected={"Out": np.array([[[[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0]]]])},
        ),
        Sample(
            pooled([[[[0, 3], [9, 15]], [[1, 2], [12, 7]]]] * 2),
            {"ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "unpooling_type": "max"},
        ),
        Sample(
            pooled([[[[0, 3, 4], [9, 8, 17]]]]),
            {"ksize": [3, 2], "strides": [2, 3], "paddings": [1, 1], "unpooling_type": "max"},
        ),
    ]


@op(
    "unpool",
    inputs="X Indices",
    infer=_infer,
    attrs={"ksize": [1, 1], "strides": [1, 1], "paddings": [0, 0]},
    checks_values=True,
    samples=_samples,
    operand_ulps=1,
)
def unpool(
    xp: Any,
    x: Any,
    indices: Any,
    *,
    ksize: Sequence[int],
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    unpooling_type: str,
) -> Any:
    """Images of zeros with ``x`` at the places ``indices``, counted through each image.

    ``ksize``, ``strides`` and ``paddings`` are those of the pooling. If a position occurs twice,
    the last element is kept. Source: Paddle op ``unpool``.

    Raises:
        ValueError: an index lies outside the image.
    """
    planes, size = prod(x.shape[:2]), _size(x.shape[2:], ksize, strides, paddings)
    require_between(
        xp,
        indices,
        0,
        prod(size) - 1,
        f"Indices: places in images of {size} expected, but got {{}}",
    )
    out = xp.zeros((planes, prod(size)), dtype=x.dtype)
    places, values = indices.reshape(planes, -1), x.reshape(planes, -1)
    rows = xp.arange(planes)
    for number in range(places.shape[1]):  # one after another: the last one stays
        out[rows, places[:, number]] = values[:, number]
    return out.reshape(*x.shape[:2], *size)


@unpool.grad("X", "Indices", "Out", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=1)
def unpool_grad(xp: Any, x: Any, indices: Any, out: Any, d_out: Any) -> Any:
    """The gradient at the places."""
    planes = prod(x.shape[:2])
    flow = d_out.reshape(planes, -1)
    return xp.take_along_axis(flow, indices.reshape(planes, -1), axis=1).reshape(x.shape)
