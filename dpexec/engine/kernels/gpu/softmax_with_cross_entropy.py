"""``softmax_with_cross_entropy`` along the last axis: a block computes a row, as in softmax.

Labels are checked before the operator runs, as it declares. They are not checked again for the
gradient, where an invalid label matches no class.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dpexec.engine.kernels.gpu.rows import REDUCE, rows_grid
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.ops._labels import require_classes

_FORWARD = (
    REDUCE
    + """\
extern "C" __global__ void dp_softmax_loss(long long rows, long long width, const float* x, \
const {integer}* labels, {integer} ignored, float* out, float* loss) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* from = x + row * width;
    float* to = out + row * width;
    float most = from[0], total = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x)
      if (from[j] > most) most = from[j];
    most = largest(most);
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
      float shifted = from[j] - most;  // nan stays nan
      to[j] = expf(shifted < -64 ? -64 : shifted);
      total += to[j];
    }
    total = sum(total);
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
      to[j] /= total;
      if (j == labels[row] && j != ignored) loss[row] = -logf(to[j]);
    }
    if (threadIdx.x == 0 && labels[row] == ignored) loss[row] = 0;
  }
}
"""
)
_GRADIENT = """\
extern "C" __global__ void dp_softmax_loss_grad(long long rows, long long width, \
const float* out, const {integer}* labels, {integer} ignored, const float* d_loss, float* d_x) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    float slope = labels[row] == ignored ? 0 : d_loss[row];
    for (long long j = threadIdx.x; j < width; j += blockDim.x)
      d_x[row * width + j] = (out[row * width + j] - (j == labels[row])) * slope;
  }
}
"""
_INTEGERS = {"int32": "int", "int64": "long long"}
_SOURCES = {"dp_softmax_loss": _FORWARD, "dp_softmax_loss_grad": _GRADIENT}


@implementation("softmax_with_cross_entropy", backend="gpu")
def _forward(
    xp: Any, logits: Any, label: Any, *, soft_label: bool = False, ignore_index: int = -100,
    axis: int = -1,
) -> Any:  # fmt: skip
    """Takes float32, classes along the last axis, and labels that are numbers."""
    if soft_label or not _taken(logits, axis):
        return None
    softmax, loss = xp.empty(logits.shape, np.float32), xp.empty(label.shape, np.float32)
    counted = xp.where(label == ignore_index, 0, label)
    require_classes(xp, counted, logits.shape[-1])
    _launch(xp, "dp_softmax_loss", logits, label, ignore_index, softmax, loss)
    return softmax, loss


@implementation("softmax_with_cross_entropy_grad", backend="gpu")
def _gradient(
    xp: Any, softmax: Any, label: Any, d_loss: Any, *, soft_label: bool = False,
    ignore_index: int = -100, axis: int = -1,
) -> Any:  # fmt: skip
    if soft_label or not _taken(softmax, axis) or d_loss.dtype != "float32":
        return None
    d_logits = xp.empty(softmax.shape, np.float32)
    d_loss = xp.ascontiguousarray(d_loss)
    _launch(xp, "dp_softmax_loss_grad", softmax, label, ignore_index, d_loss, d_logits)
    return d_logits


def _taken(x: Any, axis: int) -> bool:
    return x.dtype == "float32" and bool(x.size) and axis in (-1, x.ndim - 1)


def _launch(xp: Any, name: str, x: Any, label: Any, ignore_index: int, *others: Any) -> None:
    width = x.shape[-1]
    sizes = np.int64(x.size // width), np.int64(width)
    ignored = label.dtype.type(ignore_index)
    arrays = xp.ascontiguousarray(x), xp.ascontiguousarray(label)
    kernel = _compiled(xp, name, label.dtype.name)
    kernel(*rows_grid(x.size // width, width), (*sizes, *arrays, ignored, *others))


@functools.cache
def _compiled(xp: Any, name: str, integer: str) -> Any:
    source = _SOURCES[name].replace("{integer}", _INTEGERS[integer])
    return xp.RawKernel(source, name)
