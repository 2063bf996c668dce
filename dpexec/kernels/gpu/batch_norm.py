"""``batch_norm`` in three launches: sums per channel, what follows from them, and the result.

Images are read twice and written once, as the algorithm needs. Sums are of differences to the first
element of a channel, so squares do not hide a small variance behind a large mean; parts of them are
joined in one order, in double precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.core.launches import grid
from dpexec.kernels.gpu.rows import REDUCE, rows_grid
from dpexec.ops._norms import inverse_deviation
from dpexec.ops.batch_norm import _channel_axis

__all__ = ["batch_norm_of"]

_PARTS = 16
"""Blocks per channel."""
_WIDE, _SMALL = 32, 2**20
"""Where fewer elements of a channel than ``_WIDE`` lie together, threads read far apart; that is
worth a few launches less for images of few elements only."""
_LARGEST = 2**31

_SUMS = """\
extern "C" __global__ void {name}(unsigned count, unsigned channels, unsigned inner, {arrays}, \
float* parts) {{
  for (unsigned job = blockIdx.x; job < channels * {blocks}; job += gridDim.x) {{
    unsigned c = job / {blocks}, step = {blocks} * blockDim.x;
    float first = 0, second = 0, center = {center};
    for (unsigned e = job % {blocks} * blockDim.x + threadIdx.x; e < count; e += step) {{
      long long at = ((long long)(e / inner) * channels + c) * inner + e % inner;
      {each}
    }}
    first = sum(first);
    second = sum(second);
    if (threadIdx.x == 0) {{ parts[2 * job] = first; parts[2 * job + 1] = second; }}
  }}
}}
"""
_LOOP = """\
extern "C" __global__ void {name}(unsigned n, {parameters}) {{
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {{
    {body}
  }}
}}
"""
_JOINED = f"""\
double first = 0, second = 0;
    for (unsigned j = i * {_PARTS}; j < (i + 1) * {_PARTS}; ++j) {{
      first += parts[2 * j];
      second += parts[2 * j + 1];
    }}
    """


def _sums(name: str, arrays: str, center: str, each: str) -> str:
    given = {"arrays": arrays, "center": center, "each": each}
    return REDUCE + _SUMS.format(name=name, blocks=_PARTS, **given)


def _loop(name: str, parameters: str, body: str) -> str:
    return _LOOP.format(name=name, parameters=parameters, body=body)


_SOURCES = {
    "dp_batch_norm_sums": _sums(
        "dp_batch_norm_sums", "const float* x", "x[(long long)c * inner]",
        "float v = x[at] - center; first += v; second += v * v;",
    ),
    "dp_batch_norm_grad_sums": _sums(
        "dp_batch_norm_grad_sums", "const float* x, const float* d_y, const float* mean", "mean[c]",
        "first += d_y[at]; second += d_y[at] * (x[at] - center);",
    ),
    "dp_batch_norm_statistics": _loop(
        "dp_batch_norm_statistics",
        "unsigned count, unsigned inner, const float* parts, const float* x, const float* mean, "
        "const float* variance, float* mean_out, float* variance_out, float* used, "
        "float* inverse, float momentum, float epsilon",
        _JOINED + "double shift = first / count, spread = second / count - shift * shift;\n"
        "    float m = x[(long long)i * inner] + shift, v = spread < 0 ? 0 : spread;\n"
        "    used[i] = m; inverse[i] = 1 / sqrtf(v + epsilon);\n"
        "    mean_out[i] = mean[i] * momentum + m * (1 - momentum);\n"
        "    variance_out[i] = variance[i] * momentum + v * (1 - momentum);",
    ),
    "dp_batch_norm_grad_statistics": _loop(
        "dp_batch_norm_grad_statistics",
        "const float* parts, const float* inverse, float* d_scale, float* d_bias",
        _JOINED + "d_bias[i] = first; d_scale[i] = second * inverse[i];",
    ),
    "dp_batch_norm": _loop(
        "dp_batch_norm",
        "unsigned channels, unsigned inner, const float* x, const float* mean, "
        "const float* inverse, const float* scale, const float* bias, float* y",
        "unsigned c = i / inner % channels;\n"
        "    y[i] = (x[i] - mean[c]) * (inverse[c] * scale[c]) + bias[c];",
    ),
    "dp_batch_norm_grad": _loop(
        "dp_batch_norm_grad",
        "unsigned channels, unsigned inner, const float* x, const float* d_y, const float* mean, "
        "const float* inverse, const float* scale, const float* d_scale, const float* d_bias, "
        "float* d_x, float share",
        "unsigned c = i / inner % channels;\n"
        "    float common = d_bias[c] + (x[i] - mean[c]) * inverse[c] * d_scale[c];\n"
        "    d_x[i] = (d_y[i] - share * common) * (inverse[c] * scale[c]);",
    ),
}  # fmt: skip


def batch_norm_of(type: str) -> Callable[..., Any] | None:
    """What computes ``batch_norm`` or its gradient; None if it is another operator.

    It returns None for what it does not take: other types than float32, a momentum that is a
    tensor, large images with channels that lie close together.

    Args:
        type: of the operator.
    """
    kernels: dict[str, Callable[..., Any]] = {
        "batch_norm": _forward,
        "batch_norm_grad": _gradient,
    }
    return kernels.get(type)


def _form(x: Any, layout: str) -> tuple[int, int] | None:
    """Channels, and elements of a channel that lie together; None if kernels take no such image."""
    axis = _channel_axis(x.ndim, layout)
    channels, inner = x.shape[axis], int(np.prod(x.shape[axis + 1 :], dtype=np.int64))
    fits = inner >= _WIDE or x.size <= _SMALL
    return (channels, inner) if fits and 0 < x.size < _LARGEST else None


def _forward(
    xp: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, momentum_tensor: Any = None,
    *, momentum: float = 0.9, epsilon: float = 1e-5, data_layout: str = "NCHW",
    is_test: bool = False, use_global_stats: bool = False, trainable_statistics: bool = False,
) -> Any:  # fmt: skip
    form = _form(x, data_layout)
    if form is None or momentum_tensor is not None or not _single(x, scale, bias, mean, variance):
        return None
    channels, inner = form
    x = xp.ascontiguousarray(x)
    if use_global_stats or (is_test and not trainable_statistics):
        used, inverse = mean.copy(), inverse_deviation(xp, variance, epsilon)
        mean_out, variance_out = mean.copy(), variance.copy()
    else:
        parts = xp.empty((channels, _PARTS, 2), np.float32)
        count = np.uint32(x.size // channels)
        _sum(xp, "dp_batch_norm_sums", count, form, x, parts)
        made = [xp.empty(channels, np.float32) for _ in range(4)]
        mean_out, variance_out, used, inverse = made
        given = (count, np.uint32(inner), parts, x, mean, variance, *made)
        factors = np.float32(momentum), np.float32(epsilon)
        _each(xp, "dp_batch_norm_statistics", channels, *given, *factors)
    y = xp.empty(x.shape, np.float32)
    sizes = np.uint32(channels), np.uint32(inner)
    _each(xp, "dp_batch_norm", x.size, *sizes, x, used, inverse, scale, bias, y)
    return y, mean_out, variance_out, used, inverse, None


def _gradient(
    xp: Any, x: Any, scale: Any, bias: Any, mean: Any, inverse: Any, moving_mean: Any,
    moving_variance: Any, d_y: Any, *, needs: Sequence[bool] = (True, True, True),
    epsilon: float = 1e-5, data_layout: str = "NCHW", is_test: bool = False,
    use_global_stats: bool = False, trainable_statistics: bool = False,
) -> Any:  # fmt: skip
    form = _form(x, data_layout)
    if form is None or not _single(x, scale, mean, inverse, d_y):
        return None
    channels, inner = form
    x, d_y = xp.ascontiguousarray(x), xp.ascontiguousarray(d_y)
    parts = xp.empty((channels, _PARTS, 2), np.float32)
    count = x.size // channels
    _sum(xp, "dp_batch_norm_grad_sums", np.uint32(count), form, x, d_y, mean, parts)
    d_scale, d_bias = (xp.empty(channels, np.float32) for _ in range(2))
    _each(xp, "dp_batch_norm_grad_statistics", channels, parts, inverse, d_scale, d_bias)
    if not needs[0]:
        return None, d_scale, d_bias
    d_x = xp.empty(x.shape, np.float32)
    is_global = use_global_stats or (is_test and not trainable_statistics)
    share = np.float32(0 if is_global else 1 / count)
    given = x, d_y, mean, inverse, scale, d_scale, d_bias, d_x
    _each(xp, "dp_batch_norm_grad", x.size, np.uint32(channels), np.uint32(inner), *given, share)
    return d_x, d_scale, d_bias


def _single(*arrays: Any) -> bool:
    return all(array.dtype == "float32" for array in arrays)


def _sum(xp: Any, name: str, count: Any, form: tuple[int, int], *arrays: Any) -> None:
    channels, inner = form
    blocks = rows_grid(channels * _PARTS, int(count))
    _compiled(xp, name)(*blocks, (count, np.uint32(channels), np.uint32(inner), *arrays))


def _each(xp: Any, name: str, n: int, *arguments: Any) -> None:
    _compiled(xp, name)(*grid(n), (np.uint32(n), *arguments))


@functools.cache
def _compiled(xp: Any, name: str) -> Any:
    return xp.RawKernel(_SOURCES[name], name)
