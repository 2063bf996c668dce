"""``batch_norm``: features with mean 0 and variance 1 over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    Sample,
    SampleRng,
    Spec,
    dims_match,
    op,
    require,
)
from dpexec.engine.ops._costs import NORM, of_batch_norm
from dpexec.engine.ops._norms import check_epsilon, inverse_deviation
from dpexec.engine.ops._optimizers import scalar
from dpexec.engine.ops._shapes import require_float

_WAYS = ("is_test", "use_global_stats", "trainable_statistics")


def channel_axis(rank: int, layout: str) -> int:
    """The axis of the channels in a layout; rejects unknown layouts."""
    require(
        layout in ("NCHW", "NHWC", "AnyLayout"),
        f"data_layout must be NCHW or NHWC, but is {layout}",
    )
    return rank - 1 if layout == "NHWC" else 1


def _infer(
    x: Spec,
    scale: Spec,
    bias: Spec,
    mean: Spec,
    variance: Spec,
    momentum: Spec | None,
    *,
    data_layout: str = "NCHW",
    epsilon: float = 1e-5,
    fuse_with_relu: bool = False,
) -> tuple[Spec | None, ...]:
    require_float(x)
    check_epsilon(epsilon)
    require(2 <= x.rank <= 5, f"X {x} must have 2 to 5 dimensions")
    require(not fuse_with_relu, "fuse_with_relu is not supported: add a relu")
    channels = x.shape[channel_axis(x.rank, data_layout)]
    for name, spec in (("Scale", scale), ("Bias", bias), ("Mean", mean), ("Variance", variance)):
        require(
            spec.rank == 1 and dims_match(spec.shape[0], channels),
            f"{name} {spec} must have one element per channel of X {x}",
        )
    saved = [spec.replace(lod_level=0) for spec in (mean, variance)]
    return x, mean, variance, *saved, None


def _samples(r: SampleRng) -> list[Sample]:
    def inputs(shape: tuple[int, ...], channels: int) -> dict[str, Any]:
        return {
            "X": r.normal(shape) * 2 + 1,
            "Scale": r.uniform(0.5, 1.5, (channels,)),
            "Bias": r.normal((channels,)),
            "Mean": r.normal((channels,)),
            "Variance": r.uniform(0.5, 1.5, (channels,)),
        }

    trained = ("X", "Scale", "Bias")
    empty = dict.fromkeys(
        ("SavedMean", "SavedVariance"),
        (
            "writes neither in tests and with the moving statistics; dpexec writes the "
            "statistics that it used"
        ),
    )
    return [
        Sample(inputs((4, 3, 2, 3), 3), grad=trained),
        Sample(inputs((6, 3), 3), {"data_layout": "NHWC", "momentum": 0.5}, grad=trained),
        Sample(inputs((2, 3, 2, 4), 4), {"data_layout": "NHWC"}, grad=trained),
        Sample(inputs((1, 3, 1, 1), 3), grad=trained),
        Sample(inputs((1, 3), 3), {"data_layout": "NHWC"}, grad=trained),
        Sample({**inputs((4, 3), 3), "MomentumTensor": r.uniform(0.2, 0.3, (1,))}, grad=trained),
        Sample(inputs((4, 3, 2, 3), 3), {"use_global_stats": True}, grad=trained, deviates=empty),
        Sample(inputs((4, 3, 2, 3), 3), {"is_test": True}, grad=(), deviates=empty),
        Sample(
            inputs((4, 3, 2), 3),
            {"is_test": True},
            grad=trained,
            deviates=empty
            | {
                f"{name}@GRAD": "refuses the gradient with is_test; dpexec gives it for the moving "
                "statistics"
                for name in trained
            },
        ),
    ]


def is_lone(x: Any, layout: str) -> bool:
    """Whether every channel has a single value, which would be its own mean."""
    return bool(x.size == x.shape[channel_axis(x.ndim, layout)])


def takes_moving(is_test: bool, use_global_stats: bool, trainable_statistics: bool) -> bool:
    """Whether the moving statistics are used, which stay as they are then."""
    return use_global_stats or (is_test and not trainable_statistics)


def in_planes(x: Any, layout: str) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """``x`` with few dimensions, those to reduce, and the shape of channels to broadcast."""
    if channel_axis(x.ndim, layout) == x.ndim - 1:
        return x.reshape(-1, x.shape[-1]), (0,), (-1,)
    return x.reshape(x.shape[0], x.shape[1], -1), (0, 2), (-1, 1)


@op(
    "batch_norm",
    inputs="X Scale Bias Mean Variance MomentumTensor?",
    outputs="Y MeanOut VarianceOut SavedMean SavedVariance ReserveSpace?",
    infer=_infer,
    attrs={"use_mkldnn": False},
    samples=_samples,
    operand_ulps=4,
    capturable=True,
    precision="gray",
    single="Scale Bias Mean Variance MomentumTensor MeanOut VarianceOut SavedMean SavedVariance "
    "ReserveSpace",
    statistics="Mean Variance",
    keeps=lambda op: takes_moving(*(bool(op.attrs.get(name)) for name in _WAYS)),
    quantized="outputs",
    flops=of_batch_norm,
)
def batch_norm(
    xp: Any,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    momentum_tensor: Any = None,
    *,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
    is_test: bool = False,
    use_global_stats: bool = False,
    trainable_statistics: bool = False,
) -> tuple[Any, ...]:
    """``scale * (x - mean) / sqrt(variance + epsilon) + bias`` per channel.

    Mean and variance are those of the batch, or the moving ones with ``is_test`` or
    ``use_global_stats``. ``MeanOut`` and ``VarianceOut`` are the moving ones afterwards,
    ``momentum * old + (1 - momentum) * batch``. ``SavedMean`` is the mean that was used and
    ``SavedVariance`` the *inverse standard deviation*, as in Paddle. If each channel has a single
    value in the batch, the values are returned unchanged, the moving statistics stay, and the saved
    ones are 0.
    Source: Paddle op ``batch_norm``; Ioffe, Szegedy 2015.
    """
    is_global = takes_moving(is_test, use_global_stats, trainable_statistics)
    if not is_global and is_lone(x, data_layout):
        unused = (xp.zeros_like(mean) for _ in range(2))
        return x.copy(), mean.copy(), variance.copy(), *unused, None
    kind = x.dtype.type
    planes, axes, shape = in_planes(x, data_layout)
    y = xp.empty_like(planes)
    if is_global:
        used_mean, used_variance = mean.copy(), variance
        mean_out, variance_out = mean.copy(), variance.copy()
    else:
        used_mean = planes.mean(axis=axes, dtype=x.dtype)
        xp.subtract(planes, used_mean.reshape(shape), out=y)
        xp.multiply(y, y, out=y)
        used_variance = y.mean(axis=axes, dtype=x.dtype)
        kept = kind(momentum) if momentum_tensor is None else scalar(momentum_tensor)
        mean_out = mean * kept + used_mean * (kind(1) - kept)
        variance_out = variance * kept + used_variance * (kind(1) - kept)
    inverse = inverse_deviation(xp, used_variance, epsilon)
    factor = scale * inverse
    xp.multiply(planes, factor.reshape(shape), out=y)
    y += (bias - used_mean * factor).reshape(shape)
    return y.reshape(x.shape), mean_out, variance_out, used_mean, inverse, None


@op(
    "batch_norm_grad",
    inputs="X Scale Bias SavedMean SavedVariance Mean? Variance? Y@GRAD",
    outputs="X@GRAD Scale@GRAD Bias@GRAD",
    infer=lambda x, scale, bias, *_: (x.replace(lod_level=0), scale, bias),
    operand_ulps=2,
    capturable=True,
    flops=per_element("X", 2 * NORM),
)
def batch_norm_grad(
    xp: Any,
    x: Any,
    scale: Any,
    bias: Any,
    saved_mean: Any,
    saved_inverse: Any,
    mean: Any,
    variance: Any,
    d_y: Any,
    *,
    needs: Sequence[bool] = (True, True, True),
    epsilon: float = 1e-5,
    data_layout: str = "NCHW",
    is_test: bool = False,
    use_global_stats: bool = False,
    trainable_statistics: bool = False,
) -> tuple[Any, ...]:
    """Gradient of ``batch_norm``; statistics of the batch depend on ``X``, moving ones do not."""
    is_global = takes_moving(is_test, use_global_stats, trainable_statistics)
    if not is_global and is_lone(x, data_layout):
        return d_y.copy(), xp.zeros_like(scale), xp.zeros_like(bias)
    planes, axes, shape = in_planes(x, data_layout)
    d_planes, *_ = in_planes(d_y, data_layout)
    d_bias = d_planes.sum(axis=axes)
    d_x = planes - saved_mean.reshape(shape)
    work = d_x * d_planes
    d_scale = work.sum(axis=axes) * saved_inverse
    if needs[0]:
        factor = scale * saved_inverse
        xp.multiply(d_planes, factor.reshape(shape), out=work)
        if is_global:
            d_x = work
        else:
            share = factor / (planes.size // scale.size)
            d_x *= (-share * saved_inverse * d_scale).reshape(shape)
            d_x += work
            d_x -= (share * d_bias).reshape(shape)
    return d_x.reshape(x.shape) if needs[0] else None, d_scale, d_bias


@batch_norm.grad_maker
def batch_norm_grad_maker(context: GradContext) -> list[GradOp]:
    """The moving statistics are inputs of the gradient only if they were used."""
    forward = context.op
    inputs = {
        **{slot: forward.input(slot) for slot in ("X", "Scale", "Bias")},
        **{slot: forward.output(slot) for slot in ("SavedMean", "SavedVariance")},
        "Y@GRAD": context.output_grads["Y"],
    }
    if forward.attr("use_global_stats"):
        inputs |= {slot: forward.input(slot) for slot in ("Mean", "Variance")}
    outputs = {f"{slot}@GRAD": context.input_grads[slot] for slot in ("X", "Scale", "Bias")}
    return [GradOp("batch_norm_grad", inputs, outputs, forward.plain_attrs())]
