"""Sums of rows with equal keys: from the first row on, as Paddle and machine code add them up.

``numpy.add.reduceat`` takes another order, which depends on the shape. On GPUs the host need not
wait. CuPy's own functions do not fit: ``add.reduceat`` subtracts prefix sums, and so has their
rounding errors; ``add.at`` adds in any order; and both need the number of sums, for which the host
would have to wait.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from dpexec.engine.core.places import grid

__all__ = ["add_at", "add_runs", "sums_of_runs"]

_TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long"}
_SOURCE = """\
extern "C" __global__ void dp_add_runs(long long count, long long width, long long rows, \
const long long* keys, const long long* order, const long long* targets, \
const {type}* value, const {type}* factor, {type}* out) {{
  long long n = count * width, stride = (long long)blockDim.x * gridDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {{
    long long row = i / width, column = i % width, key = keys[row], target = targets[row];
    if ((row > 0 && keys[row - 1] == key) || target < 0 || target >= rows) continue;
    {type} total = {start};
    for (long long next = row + {first}; next < count && keys[next] == key; ++next)
      total = {add};
    out[target * width + column] {store} total;
  }}
}}
"""
_SUMS = {"start": "value[order[row] * width + column]", "first": "1", "store": "+="} | {
    "add": "total + value[order[next] * width + column]"
}
_ROW_BY_ROW = {"start": "out[target * width + column]", "first": "0", "store": "="} | {
    "add": "total + factor[0] * value[order[next] * width + column]"
}


def add_at(xp: Any, out: Any, places: Any, value: Any) -> None:
    """Add to the rows of an array, also several times to one of them: in the order of ``value``.

    Args:
        xp: ``numpy`` or ``cupy``.
        out: array ``(rows, width...)``; with ``cupy`` C-contiguous.
        places: numbers of rows, of any shape.
        value: the rows to add, ``(*places.shape, width...)``.
    """
    places = places.reshape(-1)
    value = value.reshape(len(places), *out.shape[1:])
    if xp is np and not out.flags.c_contiguous:
        np.add.at(out, places, value)
        return
    if xp is np:
        width = math.prod(out.shape[1:])
        elements = places[:, None] * width + np.arange(width)
        np.add.at(out.reshape(-1), elements.reshape(-1), value.reshape(-1))  # far faster than rows
        return
    order = xp.argsort(places)  # CuPy's is stable
    rows = places[order]
    add_runs(xp, out, rows, order, rows, value)


def sums_of_runs(value: Any, starts: Any) -> Any:
    """The sums of runs of rows, on the host.

    Args:
        value: array ``(rows, width...)``, of NumPy.
        starts: where runs begin, ascending; the first is 0, and none is empty.

    Returns:
        ``(len(starts), width...)``, of the type of ``value``.
    """
    type = value.dtype if value.dtype != np.float16 else np.dtype(np.float32)  # as on GPUs
    made = value[starts].astype(type, copy=False)
    if len(starts) < len(value):
        rest = np.ones(len(value), dtype=bool)
        rest[starts] = False
        owners = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(value)))
        add_at(np, made, owners[rest], value[rest].astype(type, copy=False))
    return made.astype(value.dtype, copy=False)


def add_runs(
    xp: Any, out: Any, keys: Any, order: Any, targets: Any, value: Any, factor: Any = None
) -> None:
    """Add up rows whose keys are neighbours and equal, one after another, and add that to ``out``.

    For each run ``keys[i:j]`` of equal keys, ``out[targets[i]]`` grows by the sum of
    ``value[order[i:j]]``. With a factor, it grows by ``factor`` times each of these rows, one after
    another. Threads start at all keys, and those in the middle of a run end at once.

    Args:
        xp: ``cupy``.
        out: array ``(..., width...)``.
        keys: integers, ``(count,)``.
        order: integers, ``(count,)``: rows of ``value``.
        targets: integers, ``(count,)``: rows of ``out``; where runs begin, none comes twice. Those
            that ``out`` does not have get nothing: numbers may not have been looked at yet.
        value: array ``(rows, width...)`` of the same type.
        factor: an array of one element, of the same type.
    """
    if not value.size:
        return
    type = value.dtype if value.dtype.name in _TYPES else np.dtype(np.float32)  # for float16
    if type != value.dtype or not out.flags.c_contiguous:
        apart = xp.zeros(out.shape, type) if factor is None else xp.ascontiguousarray(out, type)
        add_runs(xp, apart, keys, order, targets, value.astype(type), factor)
        if factor is None:
            out += apart.astype(out.dtype)
        else:
            out[...] = apart
        return
    count, width = keys.size, value.size // len(value)
    numbers = (xp.ascontiguousarray(array, np.int64) for array in (keys, order, targets))
    value = xp.ascontiguousarray(value)
    scale = value if factor is None else factor.astype(type, copy=False)  # without one: not read
    kernel = _compiled(xp, _TYPES[type.name], factor is not None)
    sizes = np.int64(count), np.int64(width), np.int64(len(out))
    kernel(*grid(count * width), (*sizes, *numbers, value, scale, out))


@functools.cache
def _compiled(xp: Any, type: str, scaled: bool) -> Any:
    source = _SOURCE.format(type=type, **(_ROW_BY_ROW if scaled else _SUMS))
    return xp.RawKernel(source, "dp_add_runs", options=("--fmad=false",))  # rounds as on the host
