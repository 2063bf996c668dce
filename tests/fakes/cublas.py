"""``cupy.cuda.cublas`` without GPUs: products of matrices at addresses, column by column."""

from __future__ import annotations

import numpy as np

__all__ = ["Cublas"]


class Cublas:
    """The module.

    Args:
        machine: the GPUs.
    """

    CUBLAS_COMPUTE_32F_FAST_16BF = 75
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
    CUBLAS_GEMM_DEFAULT = -1

    def __init__(self, machine):
        self._machine = machine

    def gemmStridedBatchedEx(
        self, handle, transa, transb, m, n, k,
        alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB,
        beta, C, Ctype, ldc, strideC, batchCount, computeType, algo,
    ):  # fmt: skip
        assert Atype == Btype == Ctype == 0 and algo == -1
        assert lda >= (k if transa else m) and ldb >= (n if transb else k) and ldc >= m
        bits = {75: 16, 77: 13}[computeType]  # of the mantissa, that go
        a, left = self._stack(A, (m, k), lda, transa, strideA, batchCount)
        b, right = self._stack(B, (k, n), ldb, transb, strideB, batchCount)
        c, made = self._stack(C, (m, n), ldc, 0, strideC, batchCount)
        assert self._machine.current.device == handle

        def multiply():
            c[...] = _rounded(a, bits) @ _rounded(b, bits)

        self._machine.perform("gemm", [left, right], [made], multiply)

    def _stack(self, address, shape, leading, turned, step, count):
        columns = shape[0] if turned else shape[1]
        rows = shape[1] if turned else shape[0]
        size = (count - 1) * step + (columns - 1) * leading + rows
        flat, memory = self._machine.array_at(address, size, np.dtype("f4"))
        strides = (leading, 1) if turned else (1, leading)
        strides = [4 * step, *(4 * stride for stride in strides)]
        return np.lib.stride_tricks.as_strided(flat, (count, *shape), strides), memory


def _rounded(values, bits):
    """To fewer bits, to the nearest, of equals to the even one."""
    words = np.ascontiguousarray(values).view(np.uint32)
    half = np.uint32((1 << (bits - 1)) - 1) + (words >> np.uint32(bits) & np.uint32(1))
    return (words + half & ~np.uint32((1 << bits) - 1)).view(np.float32)
