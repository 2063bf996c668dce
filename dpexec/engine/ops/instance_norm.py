"""``instance_norm`` and ``group_norm``: channels of one image with mean 0 and variance 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._costs import NORM
from dpexec.engine.ops._edges import SQUARES, spoiled
from dpexec.engine.ops._norms import (
    check_epsilon,
    inverse_deviation,
    standardized,
    standardized_grad,
    standardized_grad_grad,
)
from dpexec.engine.ops._shapes import require_float


def _check_channels(x: Spec, channels: int, **weights: Spec | None) -> None:
    for name, spec in weights.items():
        require(
            spec is None or (spec.rank == 1 and dims_match(spec.shape[0], channels)),
            f"{name} {spec} must have one element per channel of X {x}",
        )


def _infer(
    x: Spec, scale: Spec | None, bias: Spec | None, *, epsilon: float = 1e-5
) -> tuple[Spec, Spec, Spec]:
    require_float(x)
    require(2 <= x.rank <= 5, f"X {x} must have 2 to 5 dimensions")
    check_epsilon(epsilon)
    _check_channels(x, x.shape[1], Scale=scale, Bias=bias)
    planes = -1 if min(x.shape[:2]) < 0 else x.shape[0] * x.shape[1]
    statistics = x.replace(shape=(planes,), lod_level=0)
    return x, statistics, statistics


@op(
    "instance_norm",
    inputs="X Scale? Bias?",
    outputs="Y SavedMean SavedVariance",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 2, 4)), "Scale": r.normal((3,)), "Bias": r.normal((3,))}),
        Sample(
            {"X": r.normal((2, 3, 4))},
            deviates={"*": "needs Scale and Bias; dpexec uses 1 and 0 if they are left out"},
        ),
        Sample({"X": r.normal((2, 3, 4)), "Scale": r.normal((3,)), "Bias": r.normal((3,))}),
        Sample(
            {"X": r.normal((1, 3, 2, 2)), "Scale": r.normal((3,)), "Bias": r.normal((3,))},
            {"epsilon": 0.001},
        ),
    ],
    operand_ulps=4,
    capturable=True,
    flops=per_element("X", NORM),
)
def instance_norm(
    xp: Any, x: Any, scale: Any = None, bias: Any = None, *, epsilon: float = 1e-5
) -> tuple[Any, Any, Any]:
    """``scale * (x - mean) / sqrt(variance + epsilon) + bias`` for every channel of every image.

    ``SavedMean`` and ``SavedVariance``, which is the *inverse standard deviation*, have one
    element per channel of every image. Source: Paddle op ``instance_norm``; Ulyanov et al. 2016.
    """
    planes = (*x.shape[:2], math.prod(x.shape[2:]))
    rows = x.reshape(planes[0] * planes[1], planes[2])
    y, mean, variance = standardized(xp, rows, epsilon)
    y = y.reshape(planes)
    if scale is not None:
        y *= scale[:, None]
    if bias is not None:
        y += bias[:, None]
    inverse = inverse_deviation(xp, variance, epsilon)
    return y.reshape(x.shape), mean.reshape(-1), inverse.reshape(-1)


def _infer_grad(
    x: Spec, scale: Spec | None, mean: Spec, inverse: Spec, d_y: Spec
) -> tuple[Spec, Spec, Spec]:
    weight = x.replace(shape=(x.shape[1],), lod_level=0)
    return x.replace(lod_level=0), weight, weight


@instance_norm.grad(
    "X Scale? SavedMean SavedVariance Y@GRAD",
    outputs="X@GRAD Scale@GRAD Bias@GRAD",
    infer=_infer_grad,
    operand_ulps=4,
)
def instance_norm_grad(
    xp: Any,
    x: Any,
    scale: Any,
    mean: Any,
    inverse: Any,
    d_y: Any,
    *,
    needs: Sequence[bool] = (True, True, True),
) -> tuple[Any, Any, Any]:
    """Mean and variance depend on ``X`` too."""
    planes = (*x.shape[:2], math.prod(x.shape[2:]))
    rows = (planes[0] * planes[1], planes[2])
    normal = (x.reshape(rows) - mean[:, None]) * inverse[:, None]
    d_planes = d_y.reshape(planes)
    d_x = d_scale = d_bias = None
    if needs[2]:
        d_bias = d_planes.sum(axis=(0, 2))
    if needs[1]:
        d_scale = (d_planes * normal.reshape(planes)).sum(axis=(0, 2))
    if needs[0]:
        d_rows = (d_planes.copy() if scale is None else d_planes * scale[:, None]).reshape(rows)
        d_x = standardized_grad(d_rows, normal, inverse[:, None]).reshape(x.shape)
    return d_x, d_scale, d_bias


def _infer_double(
    x: Spec,
    scale: Spec | None,
    mean: Spec,
    inverse: Spec,
    d_y: Spec,
    ddx: Spec | None,
    ddscale: Spec | None,
    ddbias: Spec | None,
) -> tuple[Spec, Spec, Spec]:
    return x, x.replace(shape=(x.shape[1],), lod_level=0), d_y


@instance_norm_grad.double_grad(
    "X Scale? SavedMean SavedVariance DY DDX? DDScale? DDBias?",
    outputs="DX DScale DDY",
    infer=_infer_double,
)
def instance_norm_grad_grad(
    xp: Any,
    x: Any,
    scale: Any,
    mean: Any,
    inverse: Any,
    d_y: Any,
    ddx: Any,
    ddscale: Any,
    ddbias: Any,
) -> tuple[Any, Any, Any]:
    """Gradients of X, Scale and ``d_y``, from those of the gradients of X, Scale and Bias."""
    planes, channels = (x.shape[0], x.shape[1], -1), (1, x.shape[1], 1)
    inverse = inverse.reshape(planes)
    normal = (x.reshape(planes) - mean.reshape(planes)) * inverse
    d_y, ddx = (xp.zeros_like(normal) if a is None else a.reshape(planes) for a in (d_y, ddx))
    scales = (
        xp.full(channels, missing, x.dtype) if a is None else a.reshape(channels)
        for a, missing in ((scale, 1), (ddscale, 0), (ddbias, 0))
    )
    d_x, d_scale, ddy = standardized_grad_grad(normal, inverse, d_y, ddx, tuple(scales))
    return d_x.reshape(x.shape), d_scale.sum(axis=(0, 2)), ddy.reshape(x.shape)


def _channel_axis(rank: int, layout: str) -> int:
    require(layout in ("NCHW", "NHWC"), f"data_layout must be NCHW or NHWC, but is {layout}")
    return rank - 1 if layout == "NHWC" else 1


def _infer_group(
    x: Spec,
    scale: Spec | None,
    bias: Spec | None,
    *,
    groups: int,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
) -> tuple[Spec, Spec, Spec]:
    require(2 <= x.rank <= 5, f"X {x} must have 2 to 5 dimensions")
    check_epsilon(epsilon, largest=1.0)
    channels = x.shape[_channel_axis(x.rank, data_layout)]
    require(
        groups >= 1 and (channels < 0 or groups <= channels),
        f"groups must be between 1 and the channels of X {x}, but is {groups}",
    )
    _check_channels(x, channels, Scale=scale, Bias=bias)
    statistics = x.replace(shape=(x.shape[0], groups), lod_level=0)
    return x, statistics, statistics


def _channels_first(x: Any, layout: str) -> Any:
    """``x`` as (batch, channels, positions)."""
    if _channel_axis(x.ndim, layout) != 1:
        return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1]).transpose(0, 2, 1)
    return x.reshape(x.shape[0], x.shape[1], math.prod(x.shape[2:]))


def _channels_back(xp: Any, planes: Any, shape: tuple[int, ...], layout: str) -> Any:
    if _channel_axis(len(shape), layout) != 1:
        planes = xp.ascontiguousarray(planes.transpose(0, 2, 1))
    return planes.reshape(shape)


def _grouped(channels: int, groups: int) -> list[tuple[slice, int]]:
    """Slices of channels, each with its number of groups of equal size; the last may be smaller.

    The last groups may be empty, for example with 5 channels in 4 groups.
    """
    size = -(-channels // groups)
    full = channels // size
    rest = [(slice(full * size, channels), 1)] if channels % size else []
    return [(slice(0, full * size), full), *rest]


def _beside(xp: Any, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=1)


@op(
    "group_norm",
    inputs="X Scale? Bias?",
    outputs="Y Mean Variance",
    infer=_infer_group,
    samples=lambda r: [
        Sample(
            {"X": r.normal((2, 4, 3, 2)), "Scale": r.away_from(0, (4,)), "Bias": r.normal((4,))},
            {"groups": 2},
        ),
        Sample(
            {"X": r.normal((2, 3, 2, 6)), "Scale": r.away_from(0, (6,))},
            {"groups": 3, "data_layout": "NHWC"},
        ),
        Sample(
            {"X": r.normal((2, 4, 3))},
            {"groups": 4},
            deviates={"*": "crashes on an X of three dimensions; dpexec normalizes it"},
        ),
        Sample(
            {"X": r.normal((2, 4, 2, 2)), "Scale": r.normal((4,)), "Bias": r.normal((4,))},
            {"groups": 4, "epsilon": 0.5},
        ),
        Sample(
            {"X": r.normal((2, 5, 2, 2)), "Scale": r.away_from(0, (5,)), "Bias": r.normal((5,))},
            {"groups": 2},
        ),
        Sample(
            {"X": r.normal((2, 3, 2, 5)), "Scale": r.away_from(0, (5,)), "Bias": r.normal((5,))},
            {"groups": 4, "data_layout": "NHWC"},
        ),
        Sample(
            {"X": r.normal((2, 4, 3, 2))},
            {"groups": 2},
            deviates={
                "X@GRAD": (
                    "gives a wrong gradient if there is no Scale, as by default of "
                    "layers.group_norm; dpexec gives the derivative"
                )
            },
        ),
        spoiled(
            Sample(
                {"X": r.normal((2, 4, 3, 2)), "Scale": np.ones(4), "Bias": np.zeros(4)},
                {"groups": 2},
            ),
            "X",
            1e30,
            "Y Variance X@GRAD Scale@GRAD",
            SQUARES,
        ),
    ],
    operand_ulps=4,
    capturable=True,
    flops=per_element("X", NORM),
)
def group_norm(
    xp: Any,
    x: Any,
    scale: Any = None,
    bias: Any = None,
    *,
    groups: int,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
) -> tuple[Any, Any, Any]:
    """``scale * (x - mean) / sqrt(variance + epsilon) + bias`` for every group of channels.

    ``Mean`` and ``Variance`` are ``(batch, groups)``, and 0 for groups without channels.
    Source: Paddle op ``group_norm``; Wu, He 2018.
    """
    planes, batch = _channels_first(x, data_layout), x.shape[0]
    parts, statistics = [], xp.zeros((2, batch, groups), x.dtype)
    first = 0
    for channels, n in _grouped(planes.shape[1], groups):
        part = planes[:, channels]
        rows = part.reshape(batch * n, part.shape[1] // n * part.shape[2])
        normal, *found = standardized(xp, rows, epsilon)
        parts.append(normal.reshape(part.shape))
        for made, kept in zip(found, statistics, strict=True):
            kept[:, first : first + n] = made.reshape(batch, n)
        first += n
    y = _beside(xp, parts)
    if scale is not None:
        y *= scale[:, None]
    if bias is not None:
        y += bias[:, None]
    return _channels_back(xp, y, x.shape, data_layout), statistics[0], statistics[1]


def _infer_group_grad(
    scale: Spec | None,
    bias: Spec | None,
    y: Spec,
    variance: Spec,
    d_y: Spec,
    *,
    data_layout: str = "NCHW",
) -> tuple[Spec, Spec, Spec]:
    weight = y.replace(shape=(y.shape[_channel_axis(y.rank, data_layout)],), lod_level=0)
    return y.replace(lod_level=0), weight, weight


@group_norm.grad(
    "Scale? Bias? Y Variance Y@GRAD",
    outputs="X@GRAD Scale@GRAD Bias@GRAD",
    infer=_infer_group_grad,
    operand_ulps=4,
)
def group_norm_grad(
    xp: Any,
    scale: Any,
    bias: Any,
    y: Any,
    variance: Any,
    d_y: Any,
    *,
    needs: Sequence[bool] = (True, True, True),
    groups: int = 1,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
) -> tuple[Any, Any, Any]:
    """Computed from the output, as in Paddle; a channel with the scale 0 counts as 0."""
    normal, d_planes = _channels_first(y, data_layout), _channels_first(d_y, data_layout)
    normal = normal - bias[:, None] if bias is not None else normal.copy()
    if scale is not None:
        normal /= xp.where(scale == 0, scale.dtype.type(1), scale)[:, None]
        normal *= (scale != 0)[:, None]
    d_x = d_scale = d_bias = None
    if needs[2]:
        d_bias = d_planes.sum(axis=(0, 2))
    if needs[1]:
        d_scale = (d_planes * normal).sum(axis=(0, 2))
    if needs[0]:
        scaled = d_planes.copy() if scale is None else d_planes * scale[:, None]
        d_x = _group_grad(xp, scaled, normal, inverse_deviation(xp, variance, epsilon))
        d_x = _channels_back(xp, d_x, y.shape, data_layout)
    return d_x, d_scale, d_bias


def _group_grad(xp: Any, d_planes: Any, normal: Any, inverse: Any) -> Any:
    """The gradient of the values before normalization; overwrites the first two arguments."""
    parts, first = [], 0
    for channels, n in _grouped(normal.shape[1], inverse.shape[1]):
        column = inverse[:, first : first + n].reshape(-1, 1)
        d_part, part = d_planes[:, channels], normal[:, channels]
        shape = (len(column), part.shape[1] // n * part.shape[2])
        d_rows = standardized_grad(d_part.reshape(shape), part.reshape(shape), column)
        parts.append(d_rows.reshape(part.shape))
        first += n
    return _beside(xp, parts)
