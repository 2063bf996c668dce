"""Kernels that do the same at every element of arrays, as CUDA source and as calls."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.core.launches import grid
from dpexec.kernels.gpu.expressions import PREAMBLE

__all__ = ["ElementKernel"]

_SOURCE = """\
{preamble}
extern "C" __global__ void {name}({parameters}) {{
  {head}
  long long stride = (long long)blockDim.x * gridDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {{
    {body}
  }}
}}
"""


class ElementKernel:
    """A CUDA kernel with a loop over ``i`` from 0 to ``n``.

    Args:
        name: of the function, its alone.
        reads: names of the arrays that it reads.
        writes: names of those that it writes, and perhaps reads.
        factors: names of numbers.
        head: statements in front of the loop.
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
        self.name = name
        parameters = ["long long n"]
        parameters += [f"const float* {array}" for array in reads]
        parameters += [f"float* {array}" for array in writes]
        parameters += [f"float {factor}" for factor in factors]
        self.source = _SOURCE.format(
            preamble=PREAMBLE,
            name=name,
            parameters=", ".join(parameters),
            head="\n  ".join(head),
            body="\n    ".join(body),
        )

    def __call__(
        self, xp: Any, n: int, reads: Sequence[Any], writes: Sequence[Any], factors: Sequence[float]
    ) -> None:
        """Enqueue it on the current stream.

        Args:
            xp: ``cupy``.
            n: number of elements.
            reads: arrays, float32, which are copied if their elements do not lie together.
            writes: arrays, float32, whose elements must lie together.
            factors: the numbers.
        """
        if not n:
            return
        given = [xp.ascontiguousarray(array) for array in reads]
        numbers = [np.float32(factor) for factor in factors]
        self._compiled(xp)(*grid(n), (np.int64(n), *given, *writes, *numbers))

    @functools.cache  # noqa: B019 - kernels live as long as the process
    def _compiled(self, xp: Any) -> Any:
        return xp.RawKernel(self.source, self.name)
