"""``inplace_abn``: batch normalization and activation that overwrite their input."""

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
    op,
    passes_on,
    require,
)
from dpexec.engine.ops._costs import NORM, of_batch_norm
from dpexec.engine.ops.batch_norm import batch_norm, batch_norm_grad, in_planes

_ACTIVATIONS = ("", "identity", "leaky_relu", "elu")
_TRAINED = ("X", "Scale", "Bias")


def _infer(
    x: Spec, scale: Spec, bias: Spec, mean: Spec, variance: Spec, momentum: Spec | None,
    *, data_layout: str = "NCHW", epsilon: float = 1e-5, fuse_with_relu: bool = False,
    activation: str = "", use_sync_bn: bool = False,
) -> tuple[Spec | None, ...]:  # fmt: skip
    require(
        activation in _ACTIVATIONS,
        f"activation must be one of {', '.join(filter(None, _ACTIVATIONS))}, or empty, but is "
        f"{activation!r}",
    )
    require(not use_sync_bn, "use_sync_bn is not supported: normalize with batch_norm")
    assert batch_norm.infer is not None
    found: tuple[Spec | None, ...] = batch_norm.infer(
        x, scale, bias, mean, variance, momentum, data_layout=data_layout, epsilon=epsilon,
        fuse_with_relu=fuse_with_relu,
    )  # fmt: skip
    return found


def _samples(r: SampleRng) -> list[Sample]:
    def sample(shape: tuple[int, ...], channels: int, **attrs: Any) -> list[Sample]:
        inputs = {"X": r.normal(shape) * 2 + 1}
        inputs |= {slot: r.normal((channels,)) for slot in ("Bias", "Mean")}
        inputs |= {slot: r.uniform(0.5, 1.5, (channels,)) for slot in ("Scale", "Variance")}
        turned = (
            {"Y": "lets the gradient operator overwrite Y by X; dpexec keeps Y"}
            if shape[0] > 1
            else {}
        )
        return [
            Sample(inputs, attrs, grad=()),
            Sample(inputs, attrs, grad=_TRAINED, deviates=turned),
        ]

    return [
        *sample((3, 2, 2), 2),
        *sample((1, 2), 2),
        *sample((4, 2), 2, activation="leaky_relu", alpha=0.3, data_layout="NHWC"),
        *sample((2, 2, 3), 2, activation="elu", alpha=0.7, momentum=0.5),
    ]


def _activated(xp: Any, z: Any, activation: str, alpha: float) -> Any:
    factor = z.dtype.type(alpha)
    if activation == "leaky_relu":
        return xp.where(z > 0, z, z * factor)
    if activation == "elu":
        return xp.where(z > 0, z, factor * xp.expm1(xp.minimum(z, 0)))
    return z


def _before(xp: Any, y: Any, activation: str, alpha: float) -> tuple[Any, Any]:
    """The activation's argument, computed from its result, and its slope there."""
    factor = y.dtype.type(alpha)
    if activation == "leaky_relu":
        return xp.where(y > 0, y, y / factor), xp.where(y > 0, y.dtype.type(1), factor)
    if activation == "elu":
        low = xp.minimum(y, 0)
        return xp.where(y > 0, y, xp.log1p(low / factor)), xp.where(y > 0, 1, low + factor)
    return y, y.dtype.type(1)


@op(
    "inplace_abn",
    inputs="X Scale Bias Mean Variance MomentumTensor?",
    outputs="Y MeanOut VarianceOut SavedMean SavedVariance ReserveSpace?",
    infer=_infer,
    attrs={"use_mkldnn": False},
    samples=_samples,
    operand_ulps=2,
    keeps=batch_norm.keeps,
    flops=of_batch_norm,
)
@passes_on(batch_norm.kernel)
def inplace_abn(
    xp: Any, *inputs: Any, activation: str = "", alpha: float = 0.1, **attrs: Any
) -> tuple[Any, ...]:
    """``activation(batch_norm(x))``, where the program keeps only the result.

    Outputs are those of ``batch_norm``. The gradient reads only ``Y`` and recomputes ``X`` from it,
    so activations must be invertible. Source: Paddle op ``inplace_abn``; Rota Bulò and others, 2018
    (In-Place Activated BatchNorm).
    """
    y, *statistics = batch_norm.kernel(xp, *inputs, **attrs)
    return _activated(xp, y, activation, alpha), *statistics


@op(
    "inplace_abn_grad",
    inputs="Y Scale Bias SavedMean SavedVariance Mean? Variance? Y@GRAD",
    outputs="X@GRAD Scale@GRAD Bias@GRAD",
    infer=lambda y, scale, bias, *_: (y.replace(lod_level=0), scale, bias),
    operand_ulps=2,
    flops=per_element("Y", 2 * NORM),
)
@passes_on(batch_norm_grad.kernel)
def inplace_abn_grad(
    xp: Any,
    y: Any,
    scale: Any,
    bias: Any,
    saved_mean: Any,
    saved_inverse: Any,
    mean: Any,
    variance: Any,
    d_y: Any,
    *,
    needs: Sequence[bool] = (True, True, True),
    activation: str = "",
    alpha: float = 0.1,
    data_layout: str = "NCHW",
    **attrs: Any,
) -> tuple[Any, ...]:
    """Gradient of ``inplace_abn``, with ``X`` recomputed from ``Y``."""
    normalized, slope = _before(xp, y, activation, alpha)
    planes, _, shape = in_planes(normalized, data_layout)
    factor = scale * saved_inverse
    factor = xp.where(factor == 0, factor.dtype.type(1), factor)
    x = (planes - bias.reshape(shape)) / factor.reshape(shape)
    x += saved_mean.reshape(shape)
    found: tuple[Any, ...] = batch_norm_grad.kernel(
        xp, x.reshape(y.shape), scale, bias, saved_mean, saved_inverse, mean, variance,
        d_y * slope, needs=needs, data_layout=data_layout, **attrs,
    )  # fmt: skip
    return found


@inplace_abn.grad_maker
def inplace_abn_grad_maker(context: GradContext) -> list[GradOp]:
    """The moving statistics are inputs of the gradient only if they were used."""
    forward = context.op
    inputs = {
        **{slot: forward.input(slot) for slot in ("Scale", "Bias")},
        **{slot: forward.output(slot) for slot in ("Y", "SavedMean", "SavedVariance")},
        "Y@GRAD": context.output_grads["Y"],
    }
    if forward.attr("use_global_stats"):
        inputs |= {slot: forward.output(f"{slot}Out") for slot in ("Mean", "Variance")}
    outputs = {f"{slot}@GRAD": context.input_grads[slot] for slot in _TRAINED}
    return [GradOp("inplace_abn_grad", inputs, outputs, forward.plain_attrs())]
