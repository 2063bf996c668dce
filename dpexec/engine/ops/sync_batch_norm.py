"""``sync_batch_norm``: batch normalization with the statistics of all devices.

Every device sums its samples, a collective adds these sums, and every device normalizes with the
resulting statistics. Gradients work the same way. Sums are in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op
from dpexec.engine.ops._norms import inverse_deviation
from dpexec.engine.ops.batch_norm import batch_norm, channel_axis, in_planes


def _samples_of(*slots: str) -> Any:
    def samples(r: SampleRng) -> list[Sample]:
        return [drawn(r, (4, 3, 2)), drawn(r, (2, 3, 2, 4))]

    def drawn(r: SampleRng, shape: tuple[int, ...]) -> Sample:
        found = {
            "X": r.normal(shape),
            "Y@GRAD": r.normal(shape),
            "Sums": np.array([1.0, 2.0, -3.0, 30.0, 40.0, 50.0, 16.0]),
            "GradSums": r.normal((6,)),
            **{slot: r.uniform(0.5, 1.5, (3,)) for slot in ("Scale", "Variance", "SavedVariance")},
            **{slot: r.normal((3,)) for slot in ("Bias", "Mean", "SavedMean")},
        }
        return Sample({slot: found[slot] for slot in slots})

    return samples


def _sums(x: Spec, data_layout: str, extra: int) -> Spec:
    channels = x.shape[channel_axis(x.rank, data_layout)]
    shape = (-1 if channels < 0 else 2 * channels + extra,)
    return x.replace(shape=shape, dtype=VarType.FP64, lod_level=0)


@op(
    "sync_batch_norm_sums",
    inputs="X",
    outputs="Sums",
    infer=lambda x, *, data_layout="NCHW": _sums(x, data_layout, 1),
    attrs={"sum_over_devices": []},
    no_grad=True,
    samples=_samples_of("X"),
    capturable=True,
    flops=per_element("X", 3),
)
def sync_batch_norm_sums(xp: Any, x: Any, *, data_layout: str = "NCHW") -> Any:
    """Sum, sum of squares per channel, and number of elements of a channel.

    Source: Paddle op ``sync_batch_norm``, first half.
    """
    planes, axes, _ = in_planes(x, data_layout)
    total = planes.sum(axis=axes, dtype=xp.float64)
    squares = xp.square(planes, dtype=xp.float64).sum(axis=axes)
    return xp.concatenate([total, squares, xp.full(1, planes.size / max(total.size, 1))])


def _infer(
    x: Spec, scale: Spec, bias: Spec, mean: Spec, variance: Spec, sums: Spec,
    *, data_layout: str = "NCHW", epsilon: float = 1e-5,
) -> tuple[Spec | None, ...]:  # fmt: skip
    assert batch_norm.infer is not None
    found: tuple[Spec | None, ...] = batch_norm.infer(
        x, scale, bias, mean, variance, None, data_layout=data_layout, epsilon=epsilon
    )
    return found[:5]


@op(
    "sync_batch_norm",
    inputs="X Scale Bias Mean Variance Sums",
    outputs="Y MeanOut VarianceOut SavedMean SavedVariance",
    infer=_infer,
    no_grad=True,
    samples=_samples_of("X", "Scale", "Bias", "Mean", "Variance", "Sums"),
    capturable=True,
    flops=per_element("X", 5),
)
def sync_batch_norm(
    xp: Any,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    sums: Any,
    *,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
) -> tuple[Any, ...]:
    """As ``batch_norm``, with the sums over all devices. Source: Paddle op ``sync_batch_norm``."""
    kind = x.dtype.type
    planes, _, shape = in_planes(x, data_layout)
    total, squares = sums[:-1].reshape(2, -1) / sums[-1]
    used_mean = total.astype(x.dtype)
    used_variance = xp.maximum(squares - total * total, 0).astype(x.dtype)
    kept = kind(momentum)
    mean_out = mean * kept + used_mean * (kind(1) - kept)
    variance_out = variance * kept + used_variance * (kind(1) - kept)
    inverse = inverse_deviation(xp, used_variance, epsilon)
    factor = scale * inverse
    y = planes * factor.reshape(shape)
    y += (bias - used_mean * factor).reshape(shape)
    return y.reshape(x.shape), mean_out, variance_out, used_mean, inverse


@op(
    "sync_batch_norm_grad_sums",
    inputs="X SavedMean SavedVariance Y@GRAD",
    outputs="Sums Scale@GRAD Bias@GRAD",
    infer=lambda x, mean, inverse, d_y, *, data_layout="NCHW": (
        _sums(x, data_layout, 0), mean, mean,
    ),
    attrs={"sum_over_devices": []},
    no_grad=True,
    samples=_samples_of("X", "SavedMean", "SavedVariance", "Y@GRAD"),
    capturable=True,
    flops=per_element("X", 4),
)  # fmt: skip
def sync_batch_norm_grad_sums(
    xp: Any, x: Any, saved_mean: Any, saved_inverse: Any, d_y: Any, *, data_layout: str = "NCHW"
) -> tuple[Any, Any, Any]:
    """The gradients of Scale and Bias from this device's samples, and the sums for that of X.

    Source: Paddle op ``sync_batch_norm_grad``, first half.
    """
    planes, axes, shape = in_planes(x, data_layout)
    d_planes, *_ = in_planes(d_y, data_layout)
    normalized = (planes - saved_mean.reshape(shape)) * saved_inverse.reshape(shape)
    d_bias = d_planes.sum(axis=axes, dtype=xp.float64)
    d_scale = (normalized * d_planes).sum(axis=axes, dtype=xp.float64)
    sums = xp.concatenate([d_scale, d_bias])
    return sums, d_scale.astype(x.dtype), d_bias.astype(x.dtype)


@op(
    "sync_batch_norm_grad",
    inputs="X Scale SavedMean SavedVariance Y@GRAD Sums GradSums",
    outputs="X@GRAD",
    infer=lambda x, *_: x,
    no_grad=True,
    samples=_samples_of(
        "X", "Scale", "SavedMean", "SavedVariance", "Y@GRAD", "Sums", "GradSums"
    ),
    capturable=True,
    flops=per_element("X", 8),
)  # fmt: skip
def sync_batch_norm_grad(
    xp: Any,
    x: Any,
    scale: Any,
    saved_mean: Any,
    saved_inverse: Any,
    d_y: Any,
    sums: Any,
    grad_sums: Any,
    *,
    data_layout: str = "NCHW",
) -> Any:
    """The gradient of X: statistics depend on the samples of all devices.

    Source: Paddle op ``sync_batch_norm_grad``.
    """
    planes, _, shape = in_planes(x, data_layout)
    d_planes, *_ = in_planes(d_y, data_layout)
    d_scale, d_bias = (grad_sums.reshape(2, -1) / sums[-1]).astype(x.dtype)
    factor = scale * saved_inverse
    d_x = planes - saved_mean.reshape(shape)
    d_x *= (-factor * saved_inverse * d_scale).reshape(shape)
    d_x += d_planes * factor.reshape(shape)
    d_x -= (factor * d_bias).reshape(shape)
    return d_x.reshape(x.shape)
