"""Matrix products that round their operands: bfloat16 or TensorFloat-32, added up in float32.

cuBLAS does it on the way into its tensor cores (``CUBLAS_COMPUTE_32F_FAST_16BF`` and
``..._FAST_TF32``): there are no copies of another type. CuPy has a switch for TensorFloat-32
alone, of the process and not of a product, so cuBLAS is called here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["PRECISIONS", "PRODUCTS", "RoundingProducts"]

PRODUCTS = frozenset(["mul", "mul_grad", "matmul", "matmul_grad"])
"""Operators whose products round."""

PRECISIONS = {"bfloat16": "CUBLAS_COMPUTE_32F_FAST_16BF", "tf32": "CUBLAS_COMPUTE_32F_FAST_TF32"}
"""What cuBLAS computes in, by the name in :class:`~dpexec.BuildStrategy`."""

_ONE, _ZERO = np.ones((), np.float32), np.zeros((), np.float32)


class RoundingProducts:
    """``cupy``, but for products of float32 arrays.

    Args:
        cupy: the module.
        precision: a name of :data:`PRECISIONS`.
    """

    def __init__(self, cupy: Any, precision: str) -> None:
        self._cupy = cupy
        self._compute = getattr(cupy.cuda.cublas, PRECISIONS[precision])

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        setattr(self, name, found)  # next time it is found here
        return found

    def matmul(self, a: Any, b: Any) -> Any:
        """``a @ b``, for matrices or stacks of them.

        Args:
            a: ``(..., m, k)``.
            b: ``(..., k, n)``, with the same dimensions in front, or with none.

        Returns:
            ``(..., m, n)``.
        """
        if not (a.dtype == b.dtype == "float32" and a.size and b.size):
            return self._cupy.matmul(a, b)
        stack = a.shape[:-2] or b.shape[:-2]
        out = self._cupy.empty((*stack, a.shape[-2], b.shape[-1]), np.float32)
        self._enqueue(a, b, out, math.prod(stack))
        return out

    def _enqueue(self, a: Any, b: Any, out: Any, count: int) -> None:
        """Rows of ours are columns of cuBLAS, which therefore computes ``out.T = b.T @ a.T``."""
        cublas, kind = self._cupy.cuda.cublas, self._cupy.cuda.runtime.CUDA_R_32F
        (m, n), k = out.shape[-2:], a.shape[-1]
        turned, operands = [], []
        for matrix in (b, a):
            stored, is_turned = self._stored(matrix)
            turned.append(int(is_turned))
            operands.append((stored, _distance(stored)))
        (right, right_step), (left, left_step) = operands
        cublas.gemmStridedBatchedEx(
            self._cupy.cuda.get_cublas_handle(), *turned, n, m, k,
            _ONE.ctypes.data, right.data.ptr, kind, right.shape[-1], right_step,
            left.data.ptr, kind, left.shape[-1], left_step,
            _ZERO.ctypes.data, out.data.ptr, kind, n, m * n, count,
            self._compute, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    def _stored(self, matrix: Any) -> tuple[Any, bool]:
        """An array whose rows lie one after another, and whether the matrix is its transpose."""
        if matrix.flags.c_contiguous:
            return matrix, False
        turned = matrix.swapaxes(-1, -2)
        if turned.flags.c_contiguous:
            return turned, True
        return self._cupy.ascontiguousarray(matrix), False


def _distance(stored: Any) -> int:
    """Elements from one matrix of a stack to the next; a single one serves all."""
    return math.prod(stored.shape[-2:]) if stored.ndim > 2 else 0
