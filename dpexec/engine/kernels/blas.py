"""Matrix products by NumPy's bundled BLAS, called directly."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from threadpoolctl import ThreadpoolController

from dpexec.engine.kernels.compiling import Lazily
from dpexec.engine.kernels.machine import Count, Number, intrinsic, kernel

ir, types = Lazily("llvmlite.ir"), Lazily("numba.types")

__all__ = ["gemm", "sgemm", "sgemm_address"]

_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_NAMES = ("scipy_cblas_sgemm64_", "cblas_sgemm64_")


@functools.cache
def sgemm_address() -> int:
    """Address of a ``cblas_sgemm`` with 64-bit integers; 0 if NumPy brings another BLAS."""
    for library in ThreadpoolController().lib_controllers:
        if library.user_api == "blas":
            handle = ctypes.CDLL(library.filepath)
            for name in _NAMES:
                if hasattr(handle, name):
                    return ctypes.cast(getattr(handle, name), ctypes.c_void_p).value or 0
    return 0


@intrinsic
def sgemm(
    typing_context: Any,
    address: Any,
    flip_a: Any,
    flip_b: Any,
    m: Any,
    n: Any,
    k: Any,
    alpha: Any,
    a: Any,
    lda: Any,
    b: Any,
    ldb: Any,
    beta: Any,
    c: Any,
    ldc: Any,
) -> Any:
    """Call ``cblas_sgemm`` for row-major matrices."""
    word, real = types.int64, types.float32
    signature = types.void(*[word] * 6, real, *[word] * 4, real, word, word)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        enum, long, single = ir.IntType(32), ir.IntType(64), ir.FloatType()
        parameters = [enum] * 3 + [long] * 3 + [single] + [long] * 4 + [single, long, long]
        target = ir.FunctionType(ir.VoidType(), parameters).as_pointer()
        flips = [
            builder.select(
                builder.icmp_signed("!=", flag, ir.Constant(long, 0)),
                ir.Constant(enum, _TRANSPOSED),
                ir.Constant(enum, _PLAIN),
            )
            for flag in args[1:3]
        ]
        function = builder.inttoptr(args[0], target)
        builder.call(function, [ir.Constant(enum, _ROW_MAJOR), *flips, *args[3:]])
        return context.get_dummy_value()

    return signature, generate


@kernel
def gemm(
    function: Count, first: Count, last: Count, a_turned: Count, b_turned: Count, m: Count,
    n: Count, k: Count, alpha: Number, a: Count, a_width: Count, a_stride: Count, b: Count,
    b_width: Count, b_stride: Count, beta: Number, c: Count, c_width: Count, c_stride: Count,
) -> int:  # fmt: skip
    """``c = alpha * a @ b + beta * c`` for several matrices, with given strides between them.

    Arguments: address of sgemm, numbers of the first matrix and of the one after the last, whether
    a and b are transposed, m, n, k, alpha, a, its row length, its stride, b, its row length, its
    stride, beta, c, its row length, its stride.
    """
    for batch in range(first, last):
        sgemm(
            function,
            a_turned,
            b_turned,
            m,
            n,
            k,
            alpha,
            a + 4 * batch * a_stride,
            a_width,
            b + 4 * batch * b_stride,
            b_width,
            beta,
            c + 4 * batch * c_stride,
            c_width,
        )
    return 0
