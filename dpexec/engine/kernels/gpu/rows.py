"""Shared code of kernels in which the threads of a block work on one row."""

from __future__ import annotations

__all__ = ["REDUCE", "rows_grid"]

_FEWEST, _MOST = 32, 256
_MOST_BLOCKS = 65535

REDUCE = """\
template <class T, class Join> __device__ T joined(T mine, Join join) {
  __shared__ T parts[256];
  __syncthreads();  // nobody reads what was joined before
  parts[threadIdx.x] = mine;
  for (unsigned half = blockDim.x / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    parts[threadIdx.x] = join(parts[threadIdx.x], parts[threadIdx.x + half]);
  }
  __syncthreads();
  return parts[0];
}
template <class T> struct Add { __device__ T operator()(T a, T b) const { return a + b; } };
struct Larger { __device__ float operator()(float a, float b) const { return a < b ? b : a; } };
template <class T> __device__ T sum(T mine) { return joined(mine, Add<T>()); }
__device__ float largest(float mine) { return joined(mine, Larger()); }
"""
"""CUDA source: joins one value per thread of a block, in a fixed order; all get the result."""


def rows_grid(rows: int, width: int) -> tuple[tuple[int], tuple[int]]:
    """Blocks and threads for a loop over rows, in which one block works on a row.

    Args:
        rows: number of rows.
        width: elements per row.
    """
    threads = 1 << max(width - 1, 0).bit_length()  # a power of two: they are joined in pairs
    return (min(rows, _MOST_BLOCKS),), (min(max(threads, _FEWEST), _MOST),)
