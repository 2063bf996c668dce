"""Elementwise CUDA kernels: their source and their launches."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.places import grid
from dpexec.engine.kernels.gpu.expressions import PREAMBLE

__all__ = ["ElementKernel"]

_SOURCE = """\
{preamble}
extern "C" __global__ void {name}(unsigned jobs, {parameters}) {{
  for (unsigned job = blockIdx.x; job < jobs; job += gridDim.x) {{
    unsigned block = job, blocks = 0;
    long long n = 0;
    {arrays}
    {choice}
    {head}
    long long stride = (long long)blockDim.x * blocks;
    for (long long i = (long long)block * blockDim.x + threadIdx.x; i < n; i += stride) {{
      {body}
    }}
  }}
}}
"""
_MOST_BYTES = 4000
"""The most bytes of a kernel's parameters, a few less than 4 KB."""


class ElementKernel:
    """A CUDA kernel with a loop over ``i``, for one or many lots of arrays of ``n`` elements.

    Args:
        name: of the function; it must be unique.
        reads: names of the arrays of a lot that it reads.
        writes: names of the arrays of a lot that it writes, and may read.
        factors: names of numbers, which are the same for all lots.
        head: statements before the loop.
        body: statements for each element.
    """

    def __init__(
        self,
        name: str,
        reads: Sequence[str],
        writes: Sequence[str],
        factors: Sequence[str],
        head: Sequence[str],
        body: Sequence[str],
    ) -> None:
        self.name, self._head, self._body = name, head, body
        self._reads = len(reads)
        self._arrays = [f"const float* {array}" for array in reads]
        self._arrays += [f"float* {array}" for array in writes]
        self._factors = list(factors)
        room = _MOST_BYTES - 4 * len(self._factors)
        self._most = room // (16 + 8 * len(self._arrays))

    def __call__(
        self, xp: Any, lots: Sequence[tuple[int, Sequence[Any]]], factors: Sequence[float]
    ) -> None:
        """Enqueue it on the current stream, once, or as often as the lots need.

        Args:
            xp: ``cupy``.
            lots: for each lot the number of elements, and float32 arrays: first those that are
                read, which are copied if they are not contiguous, then those that are written,
                which must be contiguous.
            factors: the numbers.
        """
        lots = [(n, self._lying_together(xp, arrays)) for n, arrays in lots if n]
        numbers = [np.float32(factor) for factor in factors]
        for start in range(0, len(lots), self._most):
            part = lots[start : start + self._most]
            sizes = [grid(n)[0][0] for n, _ in part]
            given = [
                value
                for (n, arrays), blocks in zip(part, sizes, strict=True)
                for value in (np.int64(n), np.uint32(blocks), *arrays)
            ]
            launch = (sum(sizes),), grid(1)[1]
            self._compiled(xp, len(part))(*launch, (np.uint32(sum(sizes)), *numbers, *given))

    def _lying_together(self, xp: Any, arrays: Sequence[Any]) -> list[Any]:
        read = [xp.ascontiguousarray(array) for array in arrays[: self._reads]]
        return [*read, *arrays[self._reads :]]

    @functools.cache  # noqa: B019 - kernels live as long as the process
    def _compiled(self, xp: Any, count: int) -> Any:
        return xp.RawKernel(self.source(count), self.name)

    def source(self, count: int) -> str:
        """The source for ``count`` lots: each block finds its lot, and its number in the lot."""
        parameters, choice = [f"float {factor}" for factor in self._factors], []
        names = [array.split()[-1] for array in self._arrays]
        for k in range(count):
            parameters += [f"long long n_{k}", f"unsigned blocks_{k}"]
            parameters += [f"{array}_{k}" for array in self._arrays]
            chosen = "".join(f" {name} = {name}_{k};" for name in ("n", "blocks", *names))
            rest = f"else if ((block -= blocks_{k - 1}) < blocks_{k})"
            choice.append(f"{rest if k else 'if (block < blocks_0)'} {{{chosen} }}")
        return _SOURCE.format(
            preamble=PREAMBLE,
            name=self.name,
            parameters=", ".join(parameters),
            arrays="\n    ".join(f"{array} = nullptr;" for array in self._arrays),
            choice="\n    ".join(choice),
            head="\n    ".join(self._head),
            body="\n      ".join(self._body),
        )
