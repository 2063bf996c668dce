"""``softmax`` in one launch: a block computes a row, and reads it from memory once.

Along another axis than the last, each thread computes one column; adjacent threads compute
adjacent columns.

The Python interface of cuDNN has no softmax. Logits are clipped as in
:mod:`dpexec.engine.ops.softmax`.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from dpexec.engine.core.places import grid
from dpexec.engine.kernels.gpu.rows import REDUCE, rows_grid
from dpexec.engine.kernels.implementations import implementation

_FORWARD = (
    REDUCE
    + """\
extern "C" __global__ void dp_softmax(long long rows, long long width, const float* x, \
float* out) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* from = x + row * width;
    float* to = out + row * width;
    float most = from[0];
    for (long long j = threadIdx.x; j < width; j += blockDim.x)
      if (from[j] > most) most = from[j];
    most = largest(most);
    float total = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
      float shifted = from[j] - most;  // nan stays nan
      to[j] = expf(shifted < -64 ? -64 : shifted);
      total += to[j];
    }
    total = sum(total);
    for (long long j = threadIdx.x; j < width; j += blockDim.x) to[j] /= total;
  }
}
"""
)
_GRADIENT = (
    REDUCE
    + """\
extern "C" __global__ void dp_softmax_grad(long long rows, long long width, const float* out, \
const float* d_out, float* d_x) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    long long start = row * width;
    float total = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x)
      total += out[start + j] * d_out[start + j];
    total = sum(total);
    for (long long j = threadIdx.x; j < width; j += blockDim.x)
      d_x[start + j] = out[start + j] * (d_out[start + j] - total);
  }
}
"""
)


_ALONG_COLUMNS = """\
extern "C" __global__ void dp_softmax_columns(long long n, long long width, long long inner, \
const float* x, float* out) {
  long long stride = (long long)blockDim.x * gridDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    long long start = i / inner * width * inner + i % inner, end = start + width * inner;
    float most = x[start], total = 0;
    for (long long j = start; j < end; j += inner) if (x[j] > most) most = x[j];
    for (long long j = start; j < end; j += inner) {
      float shifted = x[j] - most;
      out[j] = expf(shifted < -64 ? -64 : shifted);
      total += out[j];
    }
    for (long long j = start; j < end; j += inner) out[j] /= total;
  }
}
"""
_GRADIENT_ALONG_COLUMNS = """\
extern "C" __global__ void dp_softmax_columns_grad(long long n, long long width, \
long long inner, const float* out, const float* d_out, float* d_x) {
  long long stride = (long long)blockDim.x * gridDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    long long start = i / inner * width * inner + i % inner, end = start + width * inner;
    float total = 0;
    for (long long j = start; j < end; j += inner) total += out[j] * d_out[j];
    for (long long j = start; j < end; j += inner) d_x[j] = out[j] * (d_out[j] - total);
  }
}
"""
_SOURCES = {
    "dp_softmax": _FORWARD,
    "dp_softmax_grad": _GRADIENT,
    "dp_softmax_columns": _ALONG_COLUMNS,
    "dp_softmax_columns_grad": _GRADIENT_ALONG_COLUMNS,
}


@implementation("softmax", backend="gpu")
def _forward(xp: Any, x: Any, *, axis: int = -1) -> Any:
    return _made(xp, "", [x], axis)


@implementation("softmax_grad", backend="gpu")
def _gradient(xp: Any, out: Any, d_out: Any, *, axis: int = -1) -> Any:
    return _made(xp, "_grad", [out, d_out], axis)


def _made(xp: Any, which: str, given: list[Any], axis: int) -> Any:
    first = given[0]
    if not first.size or any(array.dtype != "float32" for array in given):
        return None
    made, width = xp.empty(first.shape, np.float32), first.shape[axis]
    inner = prod(first.shape[axis % first.ndim + 1 :])
    count = first.size // width
    arrays = [*(xp.ascontiguousarray(array) for array in given), made]
    sizes = np.int64(count), np.int64(width)
    if inner == 1:
        _compiled(xp, "dp_softmax" + which)(*rows_grid(count, width), (*sizes, *arrays))
    else:
        kernel = _compiled(xp, "dp_softmax_columns" + which)
        kernel(*grid(count), (*sizes, np.int64(inner), *arrays))
    return made


@functools.cache
def _compiled(xp: Any, name: str) -> Any:
    return xp.RawKernel(_SOURCES[name], name)
