"""``layer_norm`` in one launch, its gradient in three; a block computes a row, as in ``softmax``.

Gradients of scale and bias are sums over rows: a block sums some rows, a thread some columns, and
CuPy adds up the partial sums of the blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from dpexec.engine.kernels.gpu.rows import REDUCE, rows_grid
from dpexec.engine.kernels.implementations import implementation

_PARTS = 256
"""The most blocks that share the rows."""

_FORWARD = """\
extern "C" __global__ void {name}(long long rows, int width, {arrays}, float* y, float* mean, \
float* variance, float epsilon) {{
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {{
    const float* from = x + row * width;
    float total = 0;
    for (int j = threadIdx.x; j < width; j += blockDim.x) total += from[j];
    float center = sum(total) / width, squares = 0;
    for (int j = threadIdx.x; j < width; j += blockDim.x)
      squares += (from[j] - center) * (from[j] - center);
    float spread = sum(squares) / width, inverse = 1 / sqrtf(spread + epsilon);
    for (int j = threadIdx.x; j < width; j += blockDim.x)
      y[row * width + j] = (from[j] - center) * inverse{scale}{bias};
    if (threadIdx.x == 0) {{ mean[row] = center; variance[row] = spread; }}
  }}
}}
"""
_GRADIENT = """\
extern "C" __global__ void {name}(long long rows, int width, {arrays}, float* d_x, float epsilon) {{
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {{
    long long start = row * width;
    float inverse = 1 / sqrtf(variance[row] + epsilon), first = 0, along = 0;
    for (int j = threadIdx.x; j < width; j += blockDim.x) {{
      float slope = d_y[start + j]{scale};
      first += slope;
      along += slope * (x[start + j] - mean[row]) * inverse;
    }}
    first = sum(first) / width;
    along = sum(along) / width;
    for (int j = threadIdx.x; j < width; j += blockDim.x) {{
      float normal = (x[start + j] - mean[row]) * inverse;
      d_x[start + j] = (d_y[start + j]{scale} - first - normal * along) * inverse;
    }}
  }}
}}
"""
_COLUMNS = """\
extern "C" __global__ void dp_layer_norm_columns(long long rows, int width, int parts, \
const float* x, const float* d_y, const float* mean, const float* variance, float* sums, \
float epsilon) {
  for (int part = blockIdx.x; part < parts; part += gridDim.x)
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
      float scale = 0, bias = 0;
      for (long long row = part; row < rows; row += parts) {
        float slope = d_y[row * width + j], inverse = 1 / sqrtf(variance[row] + epsilon);
        scale += slope * ((x[row * width + j] - mean[row]) * inverse);
        bias += slope;
      }
      sums[(long long)part * width + j] = scale;
      sums[((long long)parts + part) * width + j] = bias;
    }
}
"""


@implementation("layer_norm", backend="gpu")
def _forward(
    xp: Any, x: Any, scale: Any = None, bias: Any = None, *, epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> Any:  # fmt: skip
    given = {"x": x, "scale": scale, "bias": bias}
    rows, width = _form(x, begin_norm_axis)
    arrays = _arrays(xp, given)
    if arrays is None:
        return None
    y = xp.empty(x.shape, np.float32)
    mean, variance = (xp.empty(rows, np.float32) for _ in range(2))
    sizes = np.int64(rows), np.int32(width)
    kernel = _compiled(xp, "dp_layer_norm", tuple(arrays))
    made = y, mean, variance, np.float32(epsilon)
    kernel(*rows_grid(rows, width), (*sizes, *arrays.values(), *made))
    return y, mean, variance


@implementation("layer_norm_grad", backend="gpu")
def _gradient(
    xp: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, d_y: Any, *,
    needs: Sequence[bool] = (True, True, True), epsilon: float = 1e-5, begin_norm_axis: int = 1,
) -> Any:  # fmt: skip
    given = {"x": x, "d_y": d_y, "mean": mean, "variance": variance, "scale": scale}
    rows, width = _form(x, begin_norm_axis)
    arrays = _arrays(xp, given)
    if arrays is None:
        return None
    sizes, factor = (np.int64(rows), np.int32(width)), np.float32(epsilon)
    d_x = d_scale = d_bias = None
    if needs[0]:
        d_x = xp.empty(x.shape, np.float32)
        kernel = _compiled(xp, "dp_layer_norm_grad", tuple(arrays))
        kernel(*rows_grid(rows, width), (*sizes, *arrays.values(), d_x, factor))
    if needs[1] or needs[2]:
        parts = min(rows, _PARTS)
        sums = xp.empty((2, parts, width), np.float32)
        read = [arrays[name] for name in ("x", "d_y", "mean", "variance")]
        kernel = _compiled(xp, "dp_layer_norm_columns", ())
        kernel(*rows_grid(parts, width), (*sizes, np.int32(parts), *read, sums, factor))
        d_scale, d_bias = sums.sum(axis=1)
    return d_x, d_scale if needs[1] else None, d_bias if needs[2] else None


def _form(x: Any, axis: int) -> tuple[int, int]:
    """Number of rows, and elements of a row."""
    return prod(x.shape[:axis]), prod(x.shape[axis:])


def _arrays(xp: Any, given: dict[str, Any]) -> dict[str, Any] | None:
    """The arrays that are not None, made contiguous; None if the kernels do not support them."""
    found = {name: array for name, array in given.items() if array is not None}
    if any(array.dtype != "float32" or not array.size for array in found.values()):
        return None
    return {name: xp.ascontiguousarray(array) for name, array in found.items()}


@functools.cache
def _compiled(xp: Any, name: str, arrays: tuple[str, ...]) -> Any:
    if name == "dp_layer_norm_columns":
        return xp.RawKernel(_COLUMNS, name)
    source = (_FORWARD if name == "dp_layer_norm" else _GRADIENT).format(
        name=name,
        arrays=", ".join(f"const float* {array}" for array in arrays),
        scale=" * scale[j]" if "scale" in arrays else "",
        bias=" + bias[j]" if "bias" in arrays else "",
    )
    return xp.RawKernel(REDUCE + source, name)
