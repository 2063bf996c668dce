"""The halves of ``sync_batch_norm`` around sums over all devices, with kernels of ``batch_norm``.

Devices exchange sums of values and of their squares, as in
:mod:`dpexec.engine.ops.sync_batch_norm`. They do so in double precision, because in single
precision a large mean would hide a small variance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.gpu.batch_norm import GRADIENT, GRADIENT_SUMS, RESULT, SUMS, single
from dpexec.engine.kernels.gpu.channels import Channels, PerChannel, PerElement
from dpexec.engine.kernels.implementations import implementation

_TOTALS = PerChannel(
    "dp_sync_batch_norm_totals",
    "unsigned count, unsigned inner, const float* x, double* sums",
    "double center = x[(long long)c * inner];\n"
    "    sums[c] = first + center * count;\n"
    "    sums[channels + c] = second + center * (2 * first + center * count);\n"
    "    if (c == 0) sums[2 * channels] = count;",
)
_GRADIENT_TOTALS = PerChannel(
    "dp_sync_batch_norm_grad_totals",
    "const float* inverse, double* sums, float* d_scale, float* d_bias",
    "second *= inverse[c];\n"
    "    sums[c] = second; sums[channels + c] = first;\n"
    "    d_scale[c] = second; d_bias[c] = first;",
)
_STATISTICS = PerElement(
    "dp_sync_batch_norm_statistics",
    "const double* sums, const float* mean, const float* variance, float* mean_out, "
    "float* variance_out, float* used, float* inverse, float momentum, float epsilon",
    "double m = sums[c] / sums[2 * channels];\n"
    "    double spread = sums[channels + c] / sums[2 * channels] - m * m;\n"
    "    float v = spread < 0 ? 0 : spread;\n"
    "    used[c] = m; inverse[c] = 1 / sqrtf(v + epsilon);\n"
    "    mean_out[c] = mean[c] * momentum + used[c] * (1 - momentum);\n"
    "    variance_out[c] = variance[c] * momentum + v * (1 - momentum);",
)


@implementation("sync_batch_norm_sums", backend="gpu")
def _sums(xp: Any, x: Any, *, data_layout: str = "NCHW") -> Any:
    form = Channels.of(x, data_layout)
    if form is None:
        return None
    x, sums = xp.ascontiguousarray(x), xp.empty(2 * form.number + 1, np.float64)
    _TOTALS(xp, SUMS(xp, form, [x]), (np.uint32(form.count), np.uint32(form.inner), x, sums))
    return sums


@implementation("sync_batch_norm", backend="gpu")
def _forward(
    xp: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, sums: Any,
    *, momentum: float = 0.9, epsilon: float = 1e-5, data_layout: str = "NCHW",
) -> Any:  # fmt: skip
    form = Channels.of(x, data_layout)
    if form is None or not single(scale, bias, mean, variance):
        return None
    x, y = xp.ascontiguousarray(x), xp.empty(x.shape, np.float32)
    made = [xp.empty(form.number, np.float32) for _ in range(4)]
    mean_out, variance_out, used, inverse = made
    factors = np.float32(momentum), np.float32(epsilon)
    one_of_each = Channels(form.number, 1, 1)
    sums = xp.asarray(sums, np.float64)  # whatever array the exchange returned
    _STATISTICS(xp, one_of_each, (sums, mean, variance, *made, *factors))
    RESULT(xp, form, (x, used, inverse, scale, bias, y))
    return y, mean_out, variance_out, used, inverse


@implementation("sync_batch_norm_grad_sums", backend="gpu")
def _gradient_sums(
    xp: Any, x: Any, mean: Any, inverse: Any, d_y: Any, *, data_layout: str = "NCHW"
) -> Any:
    form = Channels.of(x, data_layout)
    if form is None or not single(mean, inverse, d_y):
        return None
    x, d_y = xp.ascontiguousarray(x), xp.ascontiguousarray(d_y)
    sums = xp.empty(2 * form.number, np.float64)
    d_scale, d_bias = (xp.empty(form.number, np.float32) for _ in range(2))
    parts = GRADIENT_SUMS(xp, form, [x, d_y, mean])
    _GRADIENT_TOTALS(xp, parts, (inverse, sums, d_scale, d_bias))
    return sums, d_scale, d_bias


@implementation("sync_batch_norm_grad", backend="gpu")
def _gradient(
    xp: Any, x: Any, scale: Any, mean: Any, inverse: Any, d_y: Any, sums: Any, grad_sums: Any,
    *, data_layout: str = "NCHW",
) -> Any:  # fmt: skip
    form = Channels.of(x, data_layout)
    if form is None or not single(scale, mean, inverse, d_y):
        return None
    x, d_y = xp.ascontiguousarray(x), xp.ascontiguousarray(d_y)
    d_scale, d_bias = (grad_sums.reshape(2, -1) / sums[-1]).astype(np.float32)
    d_x = xp.empty(x.shape, np.float32)
    all_of_it = np.float32(1)  # the sums are divided by the number of elements already
    GRADIENT(xp, form, (x, d_y, mean, inverse, scale, d_scale, d_bias, d_x, all_of_it))
    return d_x
