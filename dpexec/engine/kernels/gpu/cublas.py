"""cuBLAS's batched matrix products, called by ctypes so that CUDA graphs can capture them.

cuBLAS supports capture, but CuPy refuses to call it while a stream is captured
(``cupy.cuda.cublas.setStream``). So its function is called directly, in the library that CuPy has
loaded, with CuPy's handle of the thread, whose stream CuPy sets before each of its own calls.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_int, c_longlong, c_void_p
from typing import Any

__all__ = ["library", "multiply"]

_MATRIX: list[Any] = [
    c_void_p,
    c_int,
    c_int,
    c_longlong,
]  # address, type, leading dimension, distance
_PRODUCT: list[Any] = [
    c_void_p, *[c_int] * 5, c_void_p, *_MATRIX, *_MATRIX, c_void_p, *_MATRIX, c_int, c_int, c_int,
]  # fmt: skip


@functools.cache
def library(cupy: Any) -> Any:
    """The functions of cuBLAS, as ctypes has them.

    Args:
        cupy: the module.
    """
    found = ctypes.CDLL(cupy.cuda.cublas.__file__)  # CuPy's module is linked with the library
    found.cublasSetStream_v2.argtypes = [c_void_p, c_void_p]
    found.cublasGemmStridedBatchedEx.argtypes = _PRODUCT
    return found


def multiply(cupy: Any, *arguments: Any) -> None:
    """Enqueue ``cublasGemmStridedBatchedEx`` on the current stream.

    Args:
        cupy: the module.
        arguments: the function's arguments after the handle; addresses are numbers.

    Raises:
        RuntimeError: the call failed.
    """
    functions, handle = library(cupy), cupy.cuda.get_cublas_handle()
    _call(functions.cublasSetStream_v2, handle, cupy.cuda.get_current_stream().ptr)
    _call(functions.cublasGemmStridedBatchedEx, handle, *arguments)


def _call(function: Any, *arguments: Any) -> None:
    status = function(*arguments)
    if status:
        raise RuntimeError(f"{function.__name__} failed with status {status}")
