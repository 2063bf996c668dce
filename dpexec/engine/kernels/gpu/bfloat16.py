"""Conversion between float32 and bfloat16, stored as uint16 since CuPy lacks bfloat16."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dpexec.engine.core.places import grid

__all__ = ["rounded", "widen"]

_LOOP = """\
extern "C" __global__ void {name}(long long n, {arrays}) {{
  long long stride = (long long)blockDim.x * gridDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {{
    {each}
  }}
}}
"""
_SOURCES = {
    "dp_round": (
        "const unsigned* x, unsigned short* out",
        "unsigned word = x[i];\n"
        "    bool is_number = (word & 0x7fffffff) <= 0x7f800000;\n"
        "    if (is_number) word += 0x7fff + (word >> 16 & 1);  // of equals to the even one\n"
        "    out[i] = word >> 16 | (is_number ? 0 : 64);",
    ),
    "dp_widen": (
        "const unsigned short* x, unsigned* out",
        "out[i] = (unsigned)x[i] << 16;",
    ),
}


def rounded(xp: Any, x: Any) -> Any:
    """The nearest numbers of bfloat16, in one launch.

    Args:
        xp: ``cupy``.
        x: float32.

    Returns:
        A fresh array of the same shape, uint16.
    """
    out = xp.empty(x.shape, np.uint16)
    _launch(xp, "dp_round", xp.ascontiguousarray(x), out)
    return out


def widen(xp: Any, x: Any, out: Any) -> None:
    """Write numbers of bfloat16 as float32, in one launch.

    Args:
        xp: ``cupy``.
        x: uint16, elements one after another.
        out: float32 of the same shape, likewise.
    """
    _launch(xp, "dp_widen", x, out)


def _launch(xp: Any, name: str, x: Any, out: Any) -> None:
    _compiled(xp, name)(*grid(x.size), (np.int64(x.size), x, out))


@functools.cache
def _compiled(xp: Any, name: str) -> Any:
    arrays, each = _SOURCES[name]
    return xp.RawKernel(_LOOP.format(name=name, arrays=arrays, each=each), name)
