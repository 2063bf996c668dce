"""``pool2d``: the maximum or mean of windows of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.ops._pooling import Pooling
from dpexec.ops._windows import image_axes, image_shape


def _infer(
    x: Spec,
    *,
    ksize: Sequence[int] = (1, 1),
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    pooling_type: str = "max",
    global_pooling: bool = False,
    exclusive: bool = True,
    ceil_mode: bool = False,
    adaptive: bool = False,
    padding_algorithm: str = "EXPLICIT",
    data_format: str = "NCHW",
) -> Spec:
    require(x.rank == 4, f"X {x} must have 4 dimensions")
    require(pooling_type in ("max", "avg"), f"pooling_type {pooling_type} is neither max nor avg")
    channel_axis, (rows, columns) = image_axes(data_format)
    pooling = Pooling.of(
        (x.shape[rows], x.shape[columns]), ksize=ksize, strides=strides, paddings=paddings,
        global_pooling=global_pooling, exclusive=exclusive, ceil_mode=ceil_mode,
        adaptive=adaptive, padding_algorithm=padding_algorithm,
    )  # fmt: skip
    shape = image_shape(x.shape[0], x.shape[channel_axis], pooling.output, data_format)
    return x.replace(shape=shape, lod_level=0)


def _samples(r: SampleRng) -> list[Sample]:
    return [
        Sample({"X": r.distinct((2, 3, 4, 6))}, {"ksize": [2, 2], "strides": [2, 2]}),
        Sample(
            {"X": r.distinct((2, 2, 7, 6))},
            {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 0, 0, 1], "ceil_mode": True},
        ),
        Sample(
            {"X": r.normal((2, 7, 6, 2))},
            {
                "pooling_type": "avg", "ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1],
                "data_format": "NHWC",
            },
        ),
        Sample(
            {"X": r.normal((2, 2, 7, 6))},
            {
                "pooling_type": "avg", "ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1],
                "exclusive": False, "ceil_mode": True,
            },
        ),
        Sample({"X": r.normal((2, 3, 4, 5))}, {"pooling_type": "avg", "global_pooling": True}),
        Sample({"X": r.distinct((2, 3, 5, 7))}, {"adaptive": True, "ksize": [2, 3]}),
        Sample(
            {"X": r.normal((2, 3, 5, 7))},
            {"adaptive": True, "ksize": [2, 3], "pooling_type": "avg"},
        ),
        Sample(
            {"X": np.array([[[[1.0, 2.0], [3.0, 4.0]]]])},
            {"ksize": [2, 2], "strides": [2, 2], "padding_algorithm": "VALID"},
            expected={"Out": np.array([[[[4.0]]]])},
        ),
    ]  # fmt: skip


@op(
    "pool2d",
    inputs="X",
    outputs="Out",
    infer=_infer,
    attrs={
        "use_cudnn": False,
        "use_mkldnn": False,
        "use_quantizer": False,
        "is_test": False,
        "strides": [1, 1],
        "paddings": [0, 0],
    },
    samples=_samples,
)
def pool2d(
    xp: Any,
    x: Any,
    *,
    ksize: Sequence[int] = (1, 1),
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    pooling_type: str = "max",
    global_pooling: bool = False,
    exclusive: bool = True,
    ceil_mode: bool = False,
    adaptive: bool = False,
    padding_algorithm: str = "EXPLICIT",
    data_format: str = "NCHW",
) -> Any:
    """The maximum or mean of each window of images ``(batch, channels, height, width)``.

    ``adaptive`` makes ``ksize`` the size of the output. ``exclusive`` leaves the padding out of
    the number that a mean is divided by. Source: Paddle op ``pool2d``.
    """
    x = _channels_first(x, data_format)
    pooling = Pooling.of(
        x.shape[2:], ksize=ksize, strides=strides, paddings=paddings,
        global_pooling=global_pooling, exclusive=exclusive, ceil_mode=ceil_mode,
        adaptive=adaptive, padding_algorithm=padding_algorithm,
    )  # fmt: skip
    out = pooling.maximum(xp, x) if pooling_type == "max" else pooling.mean(xp, x)
    return _channels_back(xp, out, data_format)


@pool2d.grad("X", "Out", "Out@GRAD")
def pool2d_grad(
    xp: Any,
    x: Any,
    out: Any,
    d_out: Any,
    *,
    ksize: Sequence[int] = (1, 1),
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    pooling_type: str = "max",
    global_pooling: bool = False,
    exclusive: bool = True,
    ceil_mode: bool = False,
    adaptive: bool = False,
    padding_algorithm: str = "EXPLICIT",
    data_format: str = "NCHW",
) -> Any:
    """To the first maximum of each window, or to all its elements alike."""
    x, out, d_out = (_channels_first(a, data_format) for a in (x, out, d_out))
    pooling = Pooling.of(
        x.shape[2:], ksize=ksize, strides=strides, paddings=paddings,
        global_pooling=global_pooling, exclusive=exclusive, ceil_mode=ceil_mode,
        adaptive=adaptive, padding_algorithm=padding_algorithm,
    )  # fmt: skip
    if pooling_type == "max":
        d_x = pooling.maximum_grad(xp, x, out, d_out)
    else:
        d_x = pooling.mean_grad(xp, d_out)
    return _channels_back(xp, d_x, data_format)


def _channels_first(images: Any, layout: str) -> Any:
    return images.transpose(0, 3, 1, 2) if layout == "NHWC" else images


def _channels_back(xp: Any, images: Any, layout: str) -> Any:
    if layout == "NHWC":
        images = images.transpose(0, 2, 3, 1)
    return xp.ascontiguousarray(images)
