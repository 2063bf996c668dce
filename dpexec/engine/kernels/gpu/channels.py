"""Sums per channel and loops over all elements, shared by the batch norm kernels.

An element of the channel is subtracted before summing, so that a large mean does not hide a small
variance. Blocks compute partial sums, which are added in a fixed order, in double precision.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.places import grid
from dpexec.engine.kernels.gpu.rows import REDUCE, rows_grid
from dpexec.engine.ops.batch_norm import channel_axis

__all__ = ["Channels", "PerChannel", "PerElement", "Sums"]

_BLOCKS, _MOST_BLOCKS = 16, 256
"""How many blocks share a channel; and at most, if the channels are the last dimension."""
_TILE = 32
_LARGEST = 2**31

_OF_PLANES = """\
extern "C" __global__ void {name}(unsigned count, unsigned channels, unsigned inner, \
unsigned shares, {arrays}, float* parts) {{
  for (unsigned job = blockIdx.x; job < channels * shares; job += gridDim.x) {{
    unsigned c = job / shares, step = shares * blockDim.x;
    float first = 0, second = 0, center = {center};
    for (unsigned e = job % shares * blockDim.x + threadIdx.x; e < count; e += step) {{
      long long at = ((long long)(e / inner) * channels + c) * inner + e % inner;
      {each}
    }}
    first = sum(first);
    second = sum(second);
    if (threadIdx.x == 0) {{ parts[2 * job] = first; parts[2 * job + 1] = second; }}
  }}
}}
"""
_OF_COLUMNS = """\
extern "C" __global__ void {name}(unsigned count, unsigned channels, unsigned inner, \
unsigned shares, {arrays}, float* parts) {{
  __shared__ float found[2][256];
  unsigned tile = blockDim.x < 64 ? blockDim.x / 2 : 32;  // channels of a block, side by side
  unsigned lines = blockDim.x / tile, line = threadIdx.x / tile;
  unsigned jobs = (channels + tile - 1) / tile * shares;
  for (unsigned job = blockIdx.x; job < jobs; job += gridDim.x) {{
    unsigned c = job / shares * tile + threadIdx.x % tile, share = job % shares;
    float first = 0, second = 0, center = c < channels ? {center} : 0;
    for (unsigned e = share * lines + line; c < channels && e < count; e += shares * lines) {{
      long long at = (long long)e * channels + c;
      {each}
    }}
    __syncthreads();  // nobody reads what was found before
    found[0][threadIdx.x] = first;
    found[1][threadIdx.x] = second;
    __syncthreads();
    if (line || c >= channels) continue;
    for (unsigned other = threadIdx.x + tile; other < blockDim.x; other += tile) {{
      first += found[0][other];
      second += found[1][other];
    }}
    parts[2 * (c * shares + share)] = first;
    parts[2 * (c * shares + share) + 1] = second;
  }}
}}
"""
_PER_CHANNEL = """\
extern "C" __global__ void {name}(unsigned channels, unsigned shares, const float* parts, \
{parameters}) {{
  for (unsigned c = blockIdx.x; c < channels; c += gridDim.x) {{
    double first = 0, second = 0;
    for (unsigned j = c * shares + threadIdx.x; j < (c + 1) * shares; j += blockDim.x) {{
      first += parts[2 * j];
      second += parts[2 * j + 1];
    }}
    first = sum(first);
    second = sum(second);
    if (threadIdx.x) continue;
    {each}
  }}
}}
"""
_PER_ELEMENT = """\
extern "C" __global__ void {name}(unsigned n, unsigned channels, unsigned inner, {parameters}) {{
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {{
    unsigned c = i / inner % channels;
    {each}
  }}
}}
"""


@dataclass(frozen=True)
class Channels:
    """The layout of the channels of an array.

    Args:
        number: number of channels.
        count: elements of each channel.
        inner: how many elements of a channel are contiguous.
    """

    number: int
    count: int
    inner: int

    @classmethod
    def of(cls, x: Any, layout: str) -> Channels | None:
        """The channels of an array; None if the kernels do not support it.

        Args:
            x: the array.
            layout: ``NCHW`` or ``NHWC``.
        """
        if x.dtype != "float32" or not 0 < x.size < _LARGEST:
            return None
        axis = channel_axis(x.ndim, layout)
        return cls(x.shape[axis], x.size // x.shape[axis], prod(x.shape[axis + 1 :]))

    @property
    def shares(self) -> int:
        """The number of parts into which the sum of a channel is divided."""
        return min(_MOST_BLOCKS, -(-self.count // 8)) if self.inner == 1 else _BLOCKS


class Sums:
    """A kernel with two sums per channel.

    Args:
        name: of the function.
        arrays: its parameters.
        center: the number that is subtracted from elements of channel ``c``.
        each: adds the element ``at`` to ``first`` and ``second``.
    """

    def __init__(self, name: str, arrays: str, center: str, each: str) -> None:
        self._name = name
        self._given = {"name": name, "arrays": arrays, "center": center, "each": each}

    def __call__(self, xp: Any, form: Channels, arrays: Sequence[Any]) -> Any:
        """Enqueue it on the current stream.

        Args:
            xp: ``cupy``.
            form: the layout of the channels.
            arrays: contiguous arrays for the parameters.

        Returns:
            The parts of the sums, ``(channels, shares, 2)``.
        """
        shares = form.shares
        parts = xp.empty((form.number, shares, 2), np.float32)
        if form.inner == 1:
            source, launch = _OF_COLUMNS, rows_grid(-(-form.number // _TILE) * shares, 256)
        else:
            source, launch = _OF_PLANES, rows_grid(form.number * shares, form.count)
        kernel = _compiled(xp, REDUCE + source.format(**self._given), self._name)
        sizes = [np.uint32(n) for n in (form.count, form.number, form.inner, shares)]
        kernel(*launch, (*sizes, *arrays, parts))
        return parts


class PerChannel:
    """A kernel that joins the parts of both sums.

    Args:
        name: of the function.
        parameters: its further parameters.
        each: statements for channel ``c`` that use the sums ``first`` and ``second``.
    """

    def __init__(self, name: str, parameters: str, each: str) -> None:
        self._name = name
        self._source = REDUCE + _PER_CHANNEL.format(name=name, parameters=parameters, each=each)

    def __call__(self, xp: Any, parts: Any, arguments: Sequence[Any]) -> None:
        """Enqueue it on the current stream.

        Args:
            xp: ``cupy``.
            parts: the parts of the sums.
            arguments: for the parameters.
        """
        number, shares, _ = parts.shape
        sizes = np.uint32(number), np.uint32(shares)
        launch = rows_grid(number, shares)
        _compiled(xp, self._source, self._name)(*launch, (*sizes, parts, *arguments))


class PerElement:
    """A kernel with a loop over all elements.

    Args:
        name: of the function.
        parameters: its further parameters.
        each: statements for element ``i``, of channel ``c``.
    """

    def __init__(self, name: str, parameters: str, each: str) -> None:
        self._name = name
        self._source = _PER_ELEMENT.format(name=name, parameters=parameters, each=each)

    def __call__(self, xp: Any, form: Channels, arguments: Sequence[Any]) -> None:
        """Enqueue it on the current stream.

        Args:
            xp: ``cupy``.
            form: the layout of the channels.
            arguments: for the parameters; arrays are contiguous.
        """
        n = form.number * form.count
        sizes = [np.uint32(number) for number in (n, form.number, form.inner)]
        _compiled(xp, self._source, self._name)(*grid(n), (*sizes, *arguments))


@functools.cache
def _compiled(xp: Any, source: str, name: str) -> Any:
    return xp.RawKernel(source, name)
