"""``batch_norm`` in three launches: sums per channel, statistics, and the result.

Images are read twice and written once, the minimum for this algorithm. ``fused_batch_norm_act``
uses the same launches, with relu.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.kernels.gpu.channels import Channels, PerChannel, PerElement, Sums
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.ops._norms import inverse_deviation

__all__ = ["GRADIENT", "GRADIENT_SUMS", "RESULT", "SUMS", "single"]

_NORMAL = "(x[i] - mean[c]) * (inverse[c] * scale[c]) + bias[c]"
_RESULT = (
    "const float* x, const float* mean, const float* inverse, const float* scale, "
    "const float* bias, float* y"
)
_SLOPES = "const float* x, const float* d_y, const float* mean"
_GRADIENT = (
    "const float* x, const float* d_y, const float* mean, const float* inverse, "
    "const float* scale, const float* d_scale, const float* d_bias, float* d_x, float share"
)


def _gradient_sums(name: str, arrays: str, slope: str) -> Sums:
    each = f"float slope = {slope}; first += slope; second += slope * (x[at] - center);"
    return Sums(name, arrays, "mean[c]", each)


def _gradient_of_x(name: str, parameters: str, slope: str) -> PerElement:
    return PerElement(
        name,
        parameters,
        "float common = d_bias[c] + (x[i] - mean[c]) * inverse[c] * d_scale[c];\n"
        f"    d_x[i] = ({slope} - share * common) * (inverse[c] * scale[c]);",
    )


SUMS = Sums(
    "dp_batch_norm_sums",
    "const float* x",
    "x[(long long)c * inner]",
    "float v = x[at] - center; first += v; second += v * v;",
)
"""Per channel, the sums of the differences to its first element, and of their squares."""
GRADIENT_SUMS = _gradient_sums("dp_batch_norm_grad_sums", _SLOPES, "d_y[at]")
"""Per channel, the sums of the gradient of y, and of its products with x minus the mean."""
RESULT = PerElement("dp_batch_norm", _RESULT, f"y[i] = {_NORMAL};")
"""Computes y of x, mean, inverse deviation, scale and bias."""
GRADIENT = _gradient_of_x("dp_batch_norm_grad", _GRADIENT, "d_y[i]")
"""Computes the gradient of x, from x, the gradient of y, mean, inverse deviation, scale and the
gradients of scale and bias. The number is the share that each element of a channel has in the last
two."""

_RELU_SUMS = _gradient_sums(
    "dp_batch_norm_relu_grad_sums", f"{_SLOPES}, const float* y", "y[at] > 0 ? d_y[at] : 0"
)
_RELU = PerElement(
    "dp_batch_norm_relu", _RESULT, f"float v = {_NORMAL};\n    y[i] = v < 0 ? 0 : v;"
)
_RELU_GRADIENT = _gradient_of_x(
    "dp_batch_norm_relu_grad", f"{_GRADIENT}, const float* y", "(y[i] > 0 ? d_y[i] : 0)"
)
_STATISTICS = PerChannel(
    "dp_batch_norm_statistics",
    "unsigned count, unsigned inner, const float* x, const float* mean, const float* variance, "
    "float* mean_out, float* variance_out, float* used, float* inverse, float momentum, "
    "float epsilon",
    "double shift = first / count, spread = second / count - shift * shift;\n"
    "    float m = x[(long long)c * inner] + shift, v = spread < 0 ? 0 : spread;\n"
    "    used[c] = m; inverse[c] = 1 / sqrtf(v + epsilon);\n"
    "    mean_out[c] = mean[c] * momentum + m * (1 - momentum);\n"
    "    variance_out[c] = variance[c] * momentum + v * (1 - momentum);",
)
_GRADIENT_STATISTICS = PerChannel(
    "dp_batch_norm_grad_statistics",
    "const float* inverse, float* d_scale, float* d_bias",
    "d_bias[c] = first; d_scale[c] = second * inverse[c];",
)


@implementation("batch_norm", backend="gpu")
def _forward(
    xp: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, momentum_tensor: Any = None,
    *, momentum: float = 0.9, epsilon: float = 1e-5, data_layout: str = "NCHW",
    is_test: bool = False, use_global_stats: bool = False, trainable_statistics: bool = False,
    result: PerElement = RESULT,
) -> Any:  # fmt: skip
    """Takes float32, no tensor for the momentum, and channels of more than one value."""
    form = Channels.of(x, data_layout)
    if form is None or form.count == 1 or momentum_tensor is not None:
        return None
    if not single(scale, bias, mean, variance):
        return None
    x = xp.ascontiguousarray(x)
    if use_global_stats or (is_test and not trainable_statistics):
        used, inverse = mean.copy(), inverse_deviation(xp, variance, epsilon)
        mean_out, variance_out = mean.copy(), variance.copy()
    else:
        made = [xp.empty(form.number, np.float32) for _ in range(4)]
        mean_out, variance_out, used, inverse = made
        given = np.uint32(form.count), np.uint32(form.inner), x, mean, variance
        factors = np.float32(momentum), np.float32(epsilon)
        _STATISTICS(xp, SUMS(xp, form, [x]), (*given, *made, *factors))
    y = xp.empty(x.shape, np.float32)
    result(xp, form, (x, used, inverse, scale, bias, y))
    return y, mean_out, variance_out, used, inverse, None


@implementation("fused_batch_norm_act", backend="gpu")
def _activated(xp: Any, *inputs: Any, act_type: str = "relu", **attrs: Any) -> Any:
    return _forward(xp, *inputs, **attrs, result=_RELU)


@implementation("batch_norm_grad", backend="gpu")
def _gradient(
    xp: Any, x: Any, scale: Any, bias: Any, mean: Any, inverse: Any, moving_mean: Any,
    moving_variance: Any, d_y: Any, y: Any = None, *, needs: Sequence[bool] = (True, True, True),
    epsilon: float = 1e-5, data_layout: str = "NCHW", is_test: bool = False,
    use_global_stats: bool = False, trainable_statistics: bool = False,
) -> Any:  # fmt: skip
    """Takes float32, and channels of more than one value."""
    form, active = Channels.of(x, data_layout), [] if y is None else [y]
    if form is None or form.count == 1 or not single(scale, mean, inverse, d_y, *active):
        return None
    sums, gradient = (_RELU_SUMS, _RELU_GRADIENT) if active else (GRADIENT_SUMS, GRADIENT)
    x, d_y, *active = (xp.ascontiguousarray(array) for array in (x, d_y, *active))
    d_scale, d_bias = (xp.empty(form.number, np.float32) for _ in range(2))
    parts = sums(xp, form, [x, d_y, mean, *active])
    _GRADIENT_STATISTICS(xp, parts, (inverse, d_scale, d_bias))
    if not needs[0]:
        return None, d_scale, d_bias
    d_x = xp.empty(x.shape, np.float32)
    is_global = use_global_stats or (is_test and not trainable_statistics)
    share = np.float32(0 if is_global else 1 / form.count)
    given = x, d_y, mean, inverse, scale, d_scale, d_bias, d_x, share
    gradient(xp, form, (*given, *active))
    return d_x, d_scale, d_bias


@implementation("fused_batch_norm_act_grad", backend="gpu")
def _activated_gradient(
    xp: Any, x: Any, y: Any, scale: Any, bias: Any, mean: Any, inverse: Any, d_y: Any,
    *, act_type: str = "relu", **attrs: Any,
) -> Any:  # fmt: skip
    return _gradient(xp, x, scale, bias, mean, inverse, None, None, d_y, y, **attrs)


def single(*arrays: Any) -> bool:
    """Whether all arrays are float32."""
    return all(array.dtype == "float32" for array in arrays)
