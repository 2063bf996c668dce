"""Convolutions and products of 8-bit numbers, as in quantized models.

Paddle leaves these operators to MKL-DNN, whose rules apply here: filters are rounded to int8 with
their own scales, sums of products are exact, and a sum is rescaled before it is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, is_float
from dpexec.engine.ir.opdef import Spec, dims_match, require
from dpexec.engine.ops.quantize import in_range

__all__ = [
    "back_scales",
    "has_eight_bits",
    "per_channel",
    "quantized",
    "require_float_or_small",
    "require_scales",
    "result_type",
    "stored",
]

_SMALL = (VarType.INT8, VarType.UINT8)


def has_eight_bits(spec: Spec) -> bool:
    """Whether a variable holds int8 or uint8."""
    return spec.dtype in _SMALL


def require_float_or_small(spec: Spec, name: str, use_mkldnn: bool) -> None:
    """Check that a variable is floating point or, with ``use_mkldnn``, has 8 bits."""
    require(
        is_float(spec.dtype) or (use_mkldnn and has_eight_bits(spec)),
        f"{name} {spec} must hold floating point numbers, or int8 or uint8 where use_mkldnn is set",
    )


def require_scales(name: str, scales: Sequence[float], weights: Spec, channels: int) -> None:
    """Reject integer weights, and scales that are neither a single one nor one per channel."""
    require(is_float(weights.dtype), f"weights {weights} must hold floating point numbers")
    require(
        len(scales) == 1 or (scales and dims_match(len(scales), channels)),
        f"{name} must hold 1 number or {channels}, but has {len(scales)}",
    )


def result_type(*, unsigned: bool, force_fp32_output: bool, residual: Spec | None) -> VarType:
    """The data type of a result: the type of the residual, if there is one.

    Args:
        unsigned: whether the activation has no negative results.
        force_fp32_output: the attribute.
        residual: the spec of the summand, or None.
    """
    if residual is None:
        small = VarType.UINT8 if unsigned else VarType.INT8
        return VarType.FP32 if force_fp32_output else small
    if residual.dtype == VarType.FP32:
        require(force_fp32_output, "ResidualData of float32 needs force_fp32_output")
        return VarType.FP32
    require(
        not force_fp32_output,
        "force_fp32_output cannot be set where ResidualData of 8 bits is added",
    )
    signed = residual.dtype == VarType.INT8
    return VarType.UINT8 if signed and unsigned else residual.dtype


def per_channel(values: Sequence[float], ndim: int, axis: int) -> Any:
    """Scales as a float32 array that goes with the channels of an array."""
    shape = [1] * ndim
    shape[axis] = -1
    return np.asarray(values, np.float32).reshape(shape)


def quantized(xp: Any, weights: Any, scales: Any) -> Any:
    """Weights as whole numbers from -128 to 127, in float64: sums of their products are exact."""
    return in_range(xp, weights * xp.asarray(scales), np.int8).astype(np.float64)


def back_scales(scale_in: float, scales: Sequence[float], scale_out: float) -> list[float]:
    """The factor of each channel's sums; a scale of 0 belongs to weights that are all 0."""
    return [scale_out if s == 0 else scale_out / (scale_in * s) for s in scales]


def stored(xp: Any, values: Any, kind: Any, *, limited: Any = None) -> Any:
    """Convert results to their data type.

    Args:
        xp: ``numpy`` or ``cupy``.
        values: float32.
        kind: data type of the result.
        limited: a narrower type that the library rounds to first.
    """
    if np.dtype(kind).kind == "f":
        return values
    return in_range(xp, values, limited or kind).astype(kind)
