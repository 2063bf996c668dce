"""Pooling of images in one launch, as :mod:`dpexec.engine.ops._pooling` declares it.

Each thread computes one element of the result: a window or, for gradients, an element of the image,
for which it visits the windows around it. So sums have a fixed order. The Python interface of cuDNN
has no pooling.
"""

from __future__ import annotations

import functools
import inspect
from math import prod
from typing import Any

import numpy as np

from dpexec.engine.core.places import grid
from dpexec.engine.kernels.implementations import implementation
from dpexec.engine.ops._pooling import Axis, Pooling
from dpexec.engine.ops._windows import channels_of, has_channels_last, image_shape, size_of

_LAYOUT = "NCHW"  # layout of images for pools that return indices

_LARGEST_WINDOW = 1024
"""Elements; larger windows are reduced by CuPy, which has many threads for each."""

_LARGEST = 2**30
"""The most elements of images: positions are 32-bit numbers, which divide far faster. Results are
hardly larger: there are at most as many windows as elements, and a few at the edges."""

_SOURCE = """\
struct Axis {{ int size, output, kernel, stride, before; }};
__device__ int first_of(const Axis& a, int k) {{  // element of a window
  if (!a.kernel) return k * a.size / a.output;
  int start = k * a.stride - a.before;
  return start > 0 ? start : 0;
}}
__device__ int end_of(const Axis& a, int k) {{
  if (!a.kernel) return ((k + 1) * a.size + a.output - 1) / a.output;
  int end = k * a.stride - a.before + a.kernel;
  return end < a.size ? end : a.size;
}}
__device__ int first_window(const Axis& a, int i) {{  // that an element is in
  if (!a.kernel) return i * a.output / a.size;
  int room = i + a.before - a.kernel + 1;
  return room > 0 ? (room + a.stride - 1) / a.stride : 0;
}}
__device__ int end_window(const Axis& a, int i) {{
  int last = a.kernel ? (i + a.before) / a.stride : ((i + 1) * a.output - 1) / a.size;
  return last + 1 < a.output ? last + 1 : a.output;
}}
__device__ float count_of(const Axis& a, int k, bool exclusive) {{
  return (float)(exclusive || !a.kernel ? end_of(a, k) - first_of(a, k) : a.kernel);
}}
extern "C" __global__ void {name}(int n, {arrays}, int inner, int exclusive, {axes}) {{
  const Axis v = {{v_size, v_output, v_kernel, v_stride, v_before}};
  const Axis h = {{h_size, h_output, h_kernel, h_stride, h_before}};
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {{
    int column = i / inner % {across}, row = i / inner / {across} % {down};
    int plane = i / inner / {across} / {down};
    int image = plane * v.size * h.size * inner + i % inner;  // one element after another
    int result = plane * v.output * h.output * inner + i % inner;
    {body}
  }}
}}
"""
_AXES = ", ".join(
    f"int {axis}_{name}"
    for axis in "vh"
    for name in ("size", "output", "kernel", "stride", "before")
)
_WINDOW = (
    "for (int y = first_of(v, row); y < end_of(v, row); ++y) "
    "for (int z = first_of(h, column); z < end_of(h, column); ++z) "
    "{{ float value = x[image + (y * h.size + z) * inner]; {each} }}"
)
_WINDOWS = (
    "for (int y = first_window(v, row); y < end_window(v, row); ++y) "
    "for (int z = first_window(h, column); z < end_window(h, column); ++z) "
    "{{ int at = result + (y * h.output + z) * inner; {each} }}"
)
_COUNT = "count_of(v, {0}, exclusive) * count_of(h, {1}, exclusive)"
_BODIES = {
    "max": (
        "float best = -3.402823466e+38f;",  # what padding counts as
        _WINDOW.format(each="if (value > best || value != value) best = value;"),
        "out[i] = best;",
    ),
    "avg": (
        "float total = 0;",
        _WINDOW.format(each="total += value;"),
        f"out[i] = total / ({_COUNT.format('row', 'column')});",
    ),
    "index": (
        "float best = -3.402823466e+38f; int found = -1;",
        _WINDOW.format(
            each="if (value > best || found < 0) {{ best = value; found = y * h.size + z; }}"
        ),
        "out[i] = best; places[i] = found;",
    ),
    "index_grad": (
        "float total = 0;",
        _WINDOWS.format(each="if (places[at] == row * h.size + column) total += d_out[at];"),
        "d_x[i] = total;",
    ),
    "max_grad": (  # to the first of equal ones
        "float total = 0, mine = x[i];",
        _WINDOWS.format(
            each="if (out[at] != mine) continue; bool first = true; "
            "for (int p = first_of(v, y); first && p <= row; ++p) "
            "for (int q = first_of(h, z); q < (p < row ? end_of(h, z) : column); ++q) "
            "if (x[image + (p * h.size + q) * inner] == mine) { first = false; break; } "
            "if (first) total += d_out[at];"
        ),
        "d_x[i] = total;",
    ),
    "avg_grad": (
        "float total = 0;",
        _WINDOWS.format(each=f"total += d_out[at] / ({_COUNT.format('y', 'z')});"),
        "d_x[i] = total;",
    ),
}
_ARRAYS = {
    "max": "const float* x, float* out",
    "avg": "const float* x, float* out",
    "index": "const float* x, int* places, float* out",
    "index_grad": "const int* places, const float* d_out, float* d_x",
    "max_grad": "const float* x, const float* out, const float* d_out, float* d_x",
    "avg_grad": "const float* d_out, float* d_x",
}


@implementation("pool2d", backend="gpu")
def _forward(
    xp: Any, x: Any, *, pooling_type: str = "max", data_format: str = "NCHW", **attrs: Any
) -> Any:
    pooling = _windows(x, data_format, attrs)
    if pooling is None:
        return None
    channels = channels_of(x.shape, data_format)
    out = xp.empty(image_shape(len(x), channels, pooling.output, data_format), np.float32)
    _launch(xp, pooling_type, [x], out, pooling, data_format)
    return out


@implementation("pool2d_grad", backend="gpu")
def _gradient(
    xp: Any, x: Any, out: Any, d_out: Any, *, pooling_type: str = "max",
    data_format: str = "NCHW", **attrs: Any,
) -> Any:  # fmt: skip
    pooling = _windows(x, data_format, attrs)
    if pooling is None or d_out.dtype != "float32":
        return None
    d_x = xp.empty(x.shape, np.float32)
    given = [x, out, d_out] if pooling_type == "max" else [d_out]
    _launch(xp, f"{pooling_type}_grad", given, d_x, pooling, data_format)
    return d_x


@implementation("max_pool2d_with_index", backend="gpu")
def _indexed(xp: Any, x: Any, **attrs: Any) -> Any:
    pooling = _windows(x, _LAYOUT, attrs)
    if pooling is None:
        return None
    out = xp.empty((*x.shape[:2], *pooling.output), np.float32)
    places = xp.empty(out.shape, np.int32)
    _launch(xp, "index", [x, places], out, pooling, _LAYOUT)
    return out, places


@implementation("max_pool2d_with_index_grad", backend="gpu")
def _indexed_gradient(xp: Any, x: Any, places: Any, d_out: Any, **attrs: Any) -> Any:
    pooling = _windows(x, _LAYOUT, attrs)
    if pooling is None or d_out.dtype != "float32":
        return None
    d_x = xp.empty(x.shape, np.float32)
    _launch(xp, "index_grad", [places, d_out], d_x, pooling, _LAYOUT)
    return d_x


def _windows(x: Any, layout: str, attrs: dict[str, Any]) -> Pooling | None:
    """The windows; None if the kernels do not support them."""
    names = inspect.signature(Pooling.of).parameters
    given = {name: value for name, value in attrs.items() if name in names}
    if x.dtype != "float32" or not 0 < x.size < _LARGEST:
        return None
    pooling = Pooling.of(size_of(x.shape, layout), **given)
    if any(axis.before < 0 for axis in pooling.axes):
        return None
    window = prod(axis.kernel or -(-axis.size // axis.output) + 1 for axis in pooling.axes)
    return pooling if window <= _LARGEST_WINDOW else None


def _launch(xp: Any, kind: str, reads: list[Any], made: Any, pooling: Pooling, layout: str) -> None:
    inner = made.shape[-1] if has_channels_last(layout) else 1
    words = [inner, int(pooling.exclusive)]
    words += [word for axis in pooling.axes for word in _words(axis)]
    given = [xp.ascontiguousarray(array) for array in reads]
    numbers = [np.int32(word) for word in words]
    _compiled(xp, kind)(*grid(made.size), (np.int32(made.size), *given, made, *numbers))


def _words(axis: Axis) -> list[int]:
    return [axis.size, axis.output, axis.kernel, axis.stride, axis.before]


@functools.cache
def _compiled(xp: Any, kind: str) -> Any:
    sides = ("v.size", "h.size") if kind.endswith("grad") else ("v.output", "h.output")
    name = f"dp_pool_{kind}"
    source = _SOURCE.format(
        name=name, arrays=_ARRAYS[kind], axes=_AXES, down=sides[0], across=sides[1],
        body="\n    ".join(_BODIES[kind]),
    )  # fmt: skip
    return xp.RawKernel(source, name)
