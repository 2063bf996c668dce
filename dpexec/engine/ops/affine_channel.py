"""``affine_channel``: a factor and an addend for every channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._shapes import require_float


def _infer(x: Spec, scale: Spec, bias: Spec, *, data_layout: str = "AnyLayout") -> Spec:
    require_float(x)
    require(x.rank >= 2, f"X {x} must have a dimension of channels")
    channels = x.shape[-1 if data_layout != "NCHW" else 1]
    for name, spec in (("Scale", scale), ("Bias", bias)):
        require(
            spec.rank == 1 and dims_match(spec.shape[0], channels),
            f"{name} {spec} must have one element per channel of X {x}",
        )
    return x


def _shape(x: Any, data_layout: str) -> tuple[int, ...]:
    """The shape in which a vector of channels broadcasts to X."""
    return (-1,) if data_layout != "NCHW" else (-1,) + (1,) * (x.ndim - 2)


@op(
    "affine_channel",
    inputs="X Scale Bias",
    infer=_infer,
    samples=lambda r: [
        Sample(
            {"X": r.normal((2, 3, 4, 5)), "Scale": r.normal((3,)), "Bias": r.normal((3,))},
            {"data_layout": "NCHW"},
        ),
        Sample(
            {"X": r.normal((2, 4, 5, 3)), "Scale": r.normal((3,)), "Bias": r.normal((3,))},
            {"data_layout": "NHWC"},
        ),
        Sample({"X": r.normal((2, 3)), "Scale": r.normal((3,)), "Bias": r.normal((3,))}),
    ],
    operand_ulps=2,
)
def affine_channel(
    xp: Any, x: Any, scale: Any, bias: Any, *, data_layout: str = "AnyLayout"
) -> Any:
    """``scale * x + bias`` with one scale and one bias for every channel.

    Channels are the last axis unless ``data_layout`` is NCHW.
    Source: Paddle op ``affine_channel``.
    """
    shape = _shape(x, data_layout)
    out = x * scale.reshape(shape)
    out += bias.reshape(shape)
    return out


@affine_channel.grad(
    "X Scale Out@GRAD",
    outputs="X@GRAD Scale@GRAD Bias@GRAD",
    infer=lambda x, scale, d_out: (x, scale, scale),
    operand_ulps=4,
)
def affine_channel_grad(
    xp: Any,
    x: Any,
    scale: Any,
    d_out: Any,
    *,
    data_layout: str = "AnyLayout",
    needs: Sequence[bool] = (True, True, True),
) -> tuple[Any, Any, Any]:
    """The gradients of scale and bias are sums over all axes but the channels."""
    channel = x.ndim - 1 if data_layout != "NCHW" else 1
    others = tuple(axis for axis in range(x.ndim) if axis != channel)
    return (
        d_out * scale.reshape(_shape(x, data_layout)) if needs[0] else None,
        (d_out * x).sum(axis=others) if needs[1] else None,
        d_out.sum(axis=others) if needs[2] else None,
    )
