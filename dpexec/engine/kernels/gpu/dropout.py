"""``dropout`` in one launch, which draws its random numbers itself.

The origin of the random stream is read from GPU memory, so that a CUDA graph can replay the launch:
see :mod:`dpexec.engine.gpu.origins`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from dpexec.engine.core.places import grid
from dpexec.engine.core.random import RandomStream
from dpexec.engine.kernels.implementations import implementation

__all__ = ["dropout"]

_BITS = 24
_SOURCE = """\
extern "C" __global__ void dp_dropout(long long n, const unsigned long long* origin, \
const float* x, float* out, unsigned char* mask, unsigned long long lowest, float factor) {
  long long stride = (long long)blockDim.x * gridDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    unsigned long long word = (origin[1] + (unsigned long long)i) * 0x9E3779B97F4A7C15ull;
    word += origin[0];
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    word ^= word >> 31;
    unsigned char kept = word >= lowest;
    mask[i] = kept;
    out[i] = x[i] * (float)kept * factor;
  }
}
"""
"""The words are those of :class:`~dpexec.engine.core.random.RandomStream`."""


@implementation("dropout", backend="gpu")
def dropout(
    xp: Any,
    x: Any,
    seed: Any = None,
    *,
    rng: RandomStream,
    dropout_prob: float = 0.5,
    is_test: bool = False,
    dropout_implementation: str = "downgrade_in_infer",
) -> tuple[Any, Any] | None:
    """The result and the mask; None for values that the kernel does not support.

    Args:
        xp: ``cupy``.
        x: the input.
        seed: a tensor with a seed, in place of the attribute.
        rng: the random numbers.
        dropout_prob: the probability that an element becomes 0.
        is_test: whether nothing is dropped.
        dropout_implementation: whether kept elements are scaled up while training.
    """
    drawn = not is_test and seed is None and dropout_prob < 1
    if not drawn or x.dtype != "float32" or not x.size:
        return None
    out, mask = xp.empty(x.shape, np.float32), xp.empty(x.shape, np.uint8)
    lowest = math.ceil(dropout_prob * 2**_BITS) << (64 - _BITS)
    upscaled = dropout_implementation == "upscale_in_train"
    factor = np.float32(1 / (1 - dropout_prob) if upscaled else 1)
    given = np.int64(x.size), rng.origin_on(xp, x.size), xp.ascontiguousarray(x)
    _compiled(xp)(*grid(x.size), (*given, out, mask, np.uint64(lowest), factor))
    return out, mask


@functools.cache
def _compiled(xp: Any) -> Any:
    return xp.RawKernel(_SOURCE, "dp_dropout")
