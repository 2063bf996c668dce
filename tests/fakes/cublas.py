"""cuBLAS without GPUs: products of matrices at addresses, column by column.

As CuPy calls it, which refuses that while a stream is captured, and as ctypes does.
"""

from __future__ import annotations

import ctypes
from threading import get_ident

import numpy as np

__all__ = ["Cublas", "refuse_captured", "rounded", "widened"]

_TYPES = {0: "f4", 1: "f8", 2: "f2", 14: "u2"}
_ROUNDS = {68: 0, 70: 0, 75: 16, 77: 13}  # by compute type, bits of the mantissa that go


class Cublas:
    """The module ``cupy.cuda.cublas``.

    Args:
        machine: the GPUs.

    Attributes:
        functions: the library, as ctypes has it.
    """

    CUBLAS_COMPUTE_32F = 68
    CUBLAS_COMPUTE_64F = 70
    CUBLAS_COMPUTE_32F_FAST_16BF = 75
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
    CUBLAS_GEMM_DEFAULT = -1

    def __init__(self, machine):
        self._machine, self.functions = machine, Functions(machine)

    def gemmStridedBatchedEx(
        self, handle, transa, transb, m, n, k,
        alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB,
        beta, C, Ctype, ldc, strideC, batchCount, computeType, algo,
    ):  # fmt: skip
        refuse_captured(self._machine)
        self.functions.streams[get_ident(), handle] = self._machine.stream()
        self.functions.cublasGemmStridedBatchedEx(
            handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB,
            beta, C, Ctype, ldc, strideC, batchCount, computeType, algo,
        )  # fmt: skip


def refuse_captured(machine):
    """Refuse what CuPy refuses: any use of its own of cuBLAS by a stream that is captured."""
    if machine.stream().capture is not None:
        raise NotImplementedError(
            "calling cuBLAS API during stream capture is currently unsupported"
        )


class Functions:
    """The library.

    Args:
        machine: the GPUs.

    Attributes:
        streams: of each handle, by thread and number of the device, as CuPy has them.
    """

    def __init__(self, machine):
        self._machine, self.streams = machine, {}

    def refuse(self, *arguments):
        return 7  # CUBLAS_STATUS_INVALID_VALUE

    def cublasSetStream_v2(self, handle, stream):
        self.streams[get_ident(), handle] = self._machine.stream_at(stream)
        return 0

    def cublasGemmStridedBatchedEx(
        self, handle, transa, transb, m, n, k,
        alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB,
        beta, C, Ctype, ldc, strideC, batchCount, computeType, algo,
    ):  # fmt: skip
        assert Atype == Btype and Atype in _TYPES and algo == -1
        assert Ctype == (0 if Atype == 14 else Atype) and (computeType == 70) == (Atype == 1)
        assert lda >= (k if transa else m) and ldb >= (n if transb else k) and ldc >= m
        bits = _ROUNDS[computeType]
        number = ctypes.c_double if computeType == 70 else ctypes.c_float
        factor = number.from_address(alpha).value
        assert number.from_address(beta).value == 0
        kind = np.dtype(_TYPES[Atype])
        a, left = self._stack(A, (m, k), lda, transa, strideA, batchCount, kind)
        b, right = self._stack(B, (k, n), ldb, transb, strideB, batchCount, kind)
        c, made = self._stack(C, (m, n), ldc, 0, strideC, batchCount, np.dtype(_TYPES[Ctype]))
        assert self._machine.current.device == handle
        assert self.streams[get_ident(), handle] is self._machine.stream()

        def multiply():  # in the order of NumPy, whose rows are columns here: so bits are the same
            turned = [rounded(widened(x), bits).swapaxes(1, 2) for x in (b, a)]
            c[...] = factor * (turned[0] @ turned[1]).swapaxes(1, 2)

        self._machine.perform("gemm", [left, right], [made], multiply)
        return 0

    def _stack(self, address, shape, leading, turned, step, count, kind):
        columns = shape[0] if turned else shape[1]
        rows = shape[1] if turned else shape[0]
        size = (count - 1) * step + (columns - 1) * leading + rows
        flat, memory = self._machine.array_at(address, size, kind)
        strides = (leading, 1) if turned else (1, leading)
        strides = [kind.itemsize * stride for stride in (step, *strides)]
        return np.lib.stride_tricks.as_strided(flat, (count, *shape), strides), memory


def widened(values):
    """Numbers of bfloat16, whose bits are there, as float32."""
    if values.dtype != np.uint16:
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)


def rounded(values, bits):
    """To fewer bits, to the nearest, of equals to the even one."""
    if not bits:
        return values
    words = np.ascontiguousarray(values).view(np.uint32)
    half = np.uint32((1 << (bits - 1)) - 1) + (words >> np.uint32(bits) & np.uint32(1))
    return (words + half & ~np.uint32((1 << bits) - 1)).view(np.float32)
