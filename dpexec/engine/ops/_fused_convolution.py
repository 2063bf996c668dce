"""Operations that passes fuse into a convolution: a bias, a residual sum, an activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    OpDef,
    Sample,
    SampleRng,
    Spec,
    dims_match,
    require,
)
from dpexec.engine.ops._convolution import Window
from dpexec.engine.ops._eight_bits import has_eight_bits
from dpexec.engine.ops._shapes import require_same_dtype, require_same_shape
from dpexec.engine.ops._windows import has_channels_last
from dpexec.engine.ops.relu import relu
from dpexec.engine.ops.sigmoid import sigmoid

_ACTIVATIONS = ("", "relu", "relu6", "leaky_relu", "swish")
PLAIN = (
    "ignores bias, residual and activation of a convolution without use_mkldnn; dpexec computes "
    "them"
)
"""A reason of samples that deviate."""


def check_fused(
    image: Spec,
    out: Spec,
    filters: int,
    others: Sequence[Spec | None],
    activation: str,
    adds: bool,
) -> None:
    """Reject operations that cannot be fused into a convolution.

    Args:
        image: input of the convolution.
        out: result of the convolution.
        filters: number of filters.
        others: the specs of ``Bias``, if the operator has that slot, and of ``ResidualData``.
        activation: the attribute ``fuse_activation``.
        adds: the attribute ``fuse_residual_connection``.
    """
    *biases, residual = others
    for bias in biases:
        if bias is not None:
            if not has_eight_bits(image):
                require_same_dtype(image, bias, "Input and Bias")
            require(dims_match(bias.size, filters), f"Bias {bias} must have {filters} numbers")
    require(
        activation in _ACTIVATIONS,
        f"fuse_activation must be one of {_ACTIVATIONS}, but is {activation!r}",
    )
    require(not adds or residual is not None, "fuse_residual_connection needs ResidualData")
    if residual is not None:
        if not has_eight_bits(image):
            require_same_dtype(image, residual, "Input and ResidualData")
        require_same_shape(out, residual, "the result and ResidualData")


def with_fused(
    xp: Any, out: Any, bias: Any, residual: Any, window: Window, activation: str, alpha: float
) -> Any:
    """Apply the fused operations to the result of a convolution.

    Args:
        xp: ``numpy`` or ``cupy``.
        out: result of the convolution; it is overwritten.
        bias: a number for each filter, or None.
        residual: like ``out``, or None.
        window: of the convolution.
        activation: its name, or nothing.
        alpha: the end of ``relu6``, the slope of ``leaky_relu``, the factor in ``swish``.
    """
    if bias is not None:
        last = has_channels_last(window.layout)
        out += bias.reshape(-1, *[1] * (0 if last else len(window.size)))
    if residual is not None:
        out += residual
    return activated(xp, out, activation, alpha)


def activated(xp: Any, out: Any, activation: str, alpha: float) -> Any:
    """The activation of a convolution; arguments as for :func:`with_fused`."""
    factor = out.dtype.type(alpha)
    if activation == "relu":
        return relu(xp, out)
    if activation == "relu6":
        return xp.clip(out, out.dtype.type(0), factor)
    if activation == "leaky_relu":
        return xp.where(out > 0, out, factor * out)
    return out * sigmoid(xp, factor * out) if activation == "swish" else out


def infer_fused_grad(
    image: Spec,
    weight: Spec,
    *others: Spec | None,
    fuse_activation: str = "",
    fuse_residual_connection: bool = False,
) -> tuple[Spec, ...]:
    """Gradients are like their inputs, without sequences; activations are for prediction."""
    require(
        not (fuse_activation or fuse_residual_connection),
        "a convolution that an activation or a sum was fused into has no gradient",
    )
    require(not has_eight_bits(image), f"Input {image} has no gradient: it holds 8 bits")
    found = (image, weight, *(spec or image for spec in others[:-1]))
    return tuple(spec.replace(lod_level=0) for spec in found)


def refuse_bias_flows(gradient: OpDef) -> None:
    """Reject double gradients of a bias, which the gradient operator does not support."""
    make = gradient.make_grad

    @gradient.grad_maker
    def maker(context: GradContext) -> list[GradOp]:
        require(
            context.flowing.isdisjoint(context.output_grads.get("Bias@GRAD", [])),
            "the gradient of a Bias of a convolution has no gradient: add it with elementwise_add",
        )
        return make(context) if make else []


def bias_grad(d_out: Any, bias: Any, window: Window) -> Any:
    """The gradient of a bias: that of the images, added up for each filter."""
    channel = d_out.ndim - 1 if has_channels_last(window.layout) else 1
    axes = tuple(axis for axis in range(d_out.ndim) if axis != channel)
    return d_out.sum(axis=axes).reshape(bias.shape)


def samples_with_fused(r: SampleRng) -> list[Sample]:
    """Calls of ``conv2d`` as MKL-DNN's passes write them."""

    def call(deviates: dict[str, str], *slots: str, **attrs: Any) -> Sample:
        known = {"Bias": r.normal((4,)), "ResidualData": r.normal((2, 4, 3, 3))}
        inputs = {"Input": r.normal((2, 3, 5, 4)), "Filter": r.normal((4, 3, 3, 2))}
        inputs |= {slot: known[slot] for slot in slots}
        return Sample(inputs, attrs, grad=(), deviates=deviates)

    fast: dict[str, Any] = {"use_mkldnn": True}
    added = {**fast, "fuse_residual_connection": True}
    return [
        call({}, "Bias", **fast),
        call({}, "Bias", **fast, fuse_activation="relu"),
        call({}, "Bias", "ResidualData", **added, fuse_activation="relu6", fuse_alpha=2.0),
        call({}, "ResidualData", **added, fuse_activation="leaky_relu", fuse_alpha=0.1),
        call({}, "Bias", **fast, fuse_activation="swish", fuse_alpha=1.5),
        call({}, "Bias", "ResidualData", **fast),
        call({"Output": PLAIN}, "Bias", fuse_activation="relu"),
        Sample(
            {
                "Input": r.normal((2, 5, 4, 3)),
                "Filter": r.normal((4, 3, 3, 2)),
                "Bias": r.normal((4,)),
            },
            {"data_format": "NHWC"},
            grad=("Input", "Filter"),  # that of Bias has no gradient
            deviates={"Output": PLAIN},
        ),
    ]
