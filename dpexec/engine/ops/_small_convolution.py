"""``conv2d`` of 8-bit images, as MKL-DNN computes it in quantized models."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.opdef import OpDef, Sample, SampleRng, Spec
from dpexec.engine.ops._convolution import Window
from dpexec.engine.ops._eight_bits import (
    back_scales,
    per_channel,
    quantized,
    require_scales,
    result_type,
    stored,
)
from dpexec.engine.ops._fused_convolution import with_fused
from dpexec.engine.ops._windows import has_channels_last

_UNSIGNED = ("relu", "relu6")
SCALING = {
    "Scale_in", "Scale_in_eltwise", "Scale_out", "Scale_weights", "force_fp32_output"
}  # fmt: skip
"""Attributes that have an effect only on 8-bit images."""

Convolve = Callable[[Any, Any, Any, Window], Any]


def infer_small(
    made: Spec,
    weight: Spec,
    others: Sequence[Spec | None],
    attrs: Mapping[str, Any],
    force_fp32_output: bool,
    scales: Sequence[float],
) -> Spec:
    """The spec of the result of an 8-bit convolution.

    Args:
        made: spec with the type of the images and the shape of the result.
        weight: the filters, float32.
        others: ``Bias`` and ``ResidualData``.
        attrs: attributes of the fused operations.
        force_fp32_output: the attribute.
        scales: the attribute ``Scale_weights``.
    """
    require_scales("Scale_weights", scales, weight, weight.shape[0])
    kind = result_type(
        unsigned=attrs.get("fuse_activation") in _UNSIGNED,
        force_fp32_output=force_fp32_output,
        residual=others[-1] if attrs.get("fuse_residual_connection") else None,
    )
    return made.replace(dtype=kind)


def with_eight_bits(definition: OpDef, convolve: Convolve) -> None:
    """Let a convolution accept 8-bit images, too.

    Args:
        definition: ``conv2d``, or a similar operator.
        convolve: the plain convolution, without fused operations.
    """
    usual = definition.kernel

    def kernel(
        xp: Any,
        image: Any,
        weight: Any,
        *others: Any,
        Scale_in: float = 1.0,
        Scale_in_eltwise: float = 1.0,
        Scale_out: float = 1.0,
        Scale_weights: Sequence[float] = (1.0,),
        force_fp32_output: bool = False,
        **attrs: Any,
    ) -> Any:
        if image.dtype.kind == "f":
            return usual(xp, image, weight, *others, **attrs)
        scales = Scales(Scale_in, Scale_weights, 1.0 if force_fp32_output else Scale_out)
        bias, residual = others or (None, None)
        fused = Fused(
            bias,
            residual if attrs.pop("fuse_residual_connection") else None,
            Scale_in_eltwise,
            attrs.pop("fuse_activation"),
            attrs.pop("fuse_alpha"),
        )
        window = Window.of(image.shape, weight.shape[2:], **attrs)
        out = _scaled(xp, convolve, image, weight, fused.bias, window, scales)
        return fused.finish(xp, out, window, scales.out, force_fp32_output)

    kernel.__doc__ = usual.__doc__
    definition.kernel = kernel
    definition.kernel_arguments |= SCALING


@dataclass(frozen=True)
class Scales:
    """Scales: the factors by which numbers were multiplied before rounding.

    Args:
        of_images: scale of the images.
        of_weights: scales of the filters, one per channel of the result or one for all.
        out: scale of the result.
    """

    of_images: float
    of_weights: Sequence[float]
    out: float


def _scaled(
    xp: Any, convolve: Convolve, image: Any, weight: Any, bias: Any, window: Window, scales: Scales
) -> Any:
    """Sums of products and a bias, times the scale of the result, in float32.

    The bias is rounded to a multiple of the value that an integer product of 1 stands for.
    """
    channel = image.ndim - 1 if has_channels_last(window.layout) else 1
    weights = quantized(xp, weight, per_channel(scales.of_weights, weight.ndim, 0))
    out = convolve(xp, image.astype(np.float64), weights, window)
    if bias is not None:
        scale = np.float32(scales.of_images) * per_channel(scales.of_weights, 1, 0)
        whole = xp.rint(bias.reshape(-1) * xp.asarray(scale)).astype(np.float64)
        out += whole.reshape([-1 if axis == channel else 1 for axis in range(out.ndim)])
    back = back_scales(scales.of_images, scales.of_weights, scales.out)
    return out.astype(np.float32) * xp.asarray(per_channel(back, out.ndim, channel))


@dataclass(frozen=True)
class Fused:
    """The operations fused into a convolution.

    Args:
        bias: a number for each filter, or None.
        residual: the summand, or None.
        scale: scale of the residual.
        activation: name of the activation, or nothing.
        alpha: parameter of the activation.
    """

    bias: Any
    residual: Any
    scale: float
    activation: str
    alpha: float

    def finish(self, xp: Any, out: Any, window: Window, scale: float, keeps: bool) -> Any:
        """Apply the fused operations, and convert the result to its data type.

        Args:
            xp: ``numpy`` or ``cupy``.
            out: the scaled sums.
            window: window of the convolution.
            scale: scale of the result.
            keeps: whether the result stays float32.
        """
        kind: Any = np.uint8 if self.activation in _UNSIGNED else np.int8
        residual, limited = self.residual, None
        if residual is not None and residual.dtype != np.float32:
            limited = self.residual.dtype
            kind = kind if limited == np.int8 else limited
            residual = self.residual.astype(np.float32) * np.float32(scale / self.scale)
        out = with_fused(xp, out, None, residual, window, self.activation, self.alpha)
        return stored(xp, out, np.float32 if keeps else kind, limited=limited)


_GIVEN = {"use_mkldnn": True, "is_test": True, "Scale_in": 40.0, "Scale_out": 4.0}
_LAYOUT = (
    "stores a result of 8 bits in the order NHWC, which a fetch reads as NCHW; dpexec fetches "
    "the elements in their places"
)
_HALVES = (
    "halves filters before it rounds them if images are int8 and the processor has no VNNI; dpexec "
    "rounds the filters themselves"
)


def _sample(
    r: SampleRng,
    kind: type[np.integer[Any]],
    *slots: str,
    size: Sequence[int] = (3, 3),
    **attrs: Any,
) -> Sample:
    ends, groups = np.iinfo(kind), attrs.get("groups", 1)
    scales = attrs.setdefault("Scale_weights", [30.0])
    residual = attrs.pop("residual", np.int8)
    deviates = attrs.pop("deviates", {})
    around = np.iinfo(residual)
    known = {
        "Bias": r.normal((4,)),
        "ResidualData": r.integers(around.min, around.max, (3, 4, 1, 1)).astype(residual),
    }
    weights = r.integers(-60, 61, (4, 4 // groups, 3, 3)) * 2.0
    if kind == np.uint8 or deviates:
        weights = r.normal(weights.shape) * 30
    inputs = {
        "Input": r.integers(ends.min, ends.max + 1, (3, 4, *size)).astype(kind),
        "Filter": weights / np.reshape(scales, (-1, 1, 1, 1)),
    }
    inputs |= {slot: known[slot] for slot in slots}
    return Sample(inputs, {**_GIVEN, **attrs}, grad=(), deviates=deviates)


def samples_of_eight_bits(r: SampleRng) -> list[Sample]:
    """Calls of ``conv2d`` as in quantized models.

    Results have one pixel, and filters of int8 images are even numbers; other calls deviate from
    Paddle.
    """
    call = functools.partial(_sample, r)
    each: dict[str, Any] = {"Scale_weights": [30.0, 20.0, 45.5, 10.0]}
    added: dict[str, Any] = {"fuse_residual_connection": True, "Scale_in_eltwise": 6.0}
    return [
        call(np.int8),
        call(np.uint8, "Bias", **each),
        call(np.int8, "Bias", **each, force_fp32_output=True),
        call(np.uint8, "Bias", groups=2, **each),
        call(np.int8, "Bias", fuse_activation="relu", size=(2, 3), strides=[2, 1], paddings=[1, 0]),
        call(np.uint8, "Bias", fuse_activation="relu6", fuse_alpha=90.0),
        call(np.int8, "Bias", fuse_activation="leaky_relu", fuse_alpha=0.2, **each),
        call(np.uint8, "Bias", fuse_activation="swish", fuse_alpha=0.1, Scale_out=2.0),
        call(np.int8, "ResidualData", **added),
        call(np.uint8, "Bias", "ResidualData", **added, fuse_activation="relu"),
        call(np.uint8, "Bias", "ResidualData", **added, residual=np.uint8, fuse_activation="relu"),
        call(np.uint8, size=(5, 4), deviates={"Output": _LAYOUT}),
        call(np.int8, deviates={"Output": _HALVES}),
    ]
