"""``softmax`` along the last axis in one launch: a row is a block's, and read from memory once.

The Python interface of cuDNN has no softmax; and logits are cut off here as
:mod:`dpexec.ops.softmax` does it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.kernels.gpu.rows import REDUCE, rows_grid

__all__ = ["softmax_of"]

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


def softmax_of(type: str) -> Callable[..., Any] | None:
    """What computes ``softmax`` or its gradient; None if it is another operator.

    It returns None for what it does not take: other types than float32, another axis.

    Args:
        type: of the operator.
    """
    kernels: dict[str, Callable[..., Any]] = {"softmax": _forward, "softmax_grad": _gradient}
    return kernels.get(type)


def _forward(xp: Any, x: Any, *, axis: int = -1) -> Any:
    return _made(xp, "dp_softmax", [x], axis)


def _gradient(xp: Any, out: Any, d_out: Any, *, axis: int = -1) -> Any:
    return _made(xp, "dp_softmax_grad", [out, d_out], axis)


def _made(xp: Any, name: str, given: list[Any], axis: int) -> Any:
    first = given[0]
    if axis not in (-1, first.ndim - 1) or not first.size:
        return None
    if any(array.dtype != "float32" for array in given):
        return None
    made, width = xp.empty(first.shape, np.float32), first.shape[-1]
    rows = first.size // width
    arrays = [xp.ascontiguousarray(array) for array in given]
    launch = rows_grid(rows, width)
    _compiled(xp, name)(*launch, (np.int64(rows), np.int64(width), *arrays, made))
    return made


@functools.cache
def _compiled(xp: Any, name: str) -> Any:
    return xp.RawKernel(_FORWARD if name == "dp_softmax" else _GRADIENT, name)
