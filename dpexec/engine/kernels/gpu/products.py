"""Matrix products by cuBLAS with options that CuPy lacks: rounded operands and a factor.

Tensor cores round operands to bfloat16 or TensorFloat-32 (``CUBLAS_COMPUTE_32F_FAST_16BF`` and
``..._FAST_TF32``) and sum in float32, without copies of another type. CuPy only has a process-wide
switch for TensorFloat-32, and CUDA graphs cannot capture its products; so all operators call cuBLAS
here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.ir import opdef
from dpexec.engine.kernels.gpu import cublas
from dpexec.engine.kernels.implementations import implementation

__all__ = ["PRECISIONS", "PRODUCTS", "compute_type", "precision_of", "products"]

_TYPES = ["mul", "matmul", "fused_gemm_epilogue", "conv2d", "depthwise_conv2d"]
PRODUCTS = frozenset([*_TYPES, *(f"{type}_grad" for type in _TYPES)])
"""Operators whose products round."""

PRECISIONS = {
    "float32": "CUBLAS_COMPUTE_32F",
    "bfloat16": "CUBLAS_COMPUTE_32F_FAST_16BF",
    "tf32": "CUBLAS_COMPUTE_32F_FAST_TF32",
}
"""cuBLAS's compute type, by the name in :class:`~dpexec.BuildStrategy`."""

_CUDA_TYPES = {"float16": "CUDA_R_16F", "float32": "CUDA_R_32F", "float64": "CUDA_R_64F"}
"""Types that cuBLAS multiplies: ``cudaDataType`` by NumPy's names."""


class _Products:
    """``cupy`` with other matrix products; see :func:`products`."""

    def __init__(self, cupy: Any, precision: str, factor: float) -> None:
        self.cupy, self.precision, self._factor = cupy, precision, factor
        self._factors = {
            kind: (np.array(factor, kind), np.zeros((), kind)) for kind in ("float32", "float64")
        }

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.cupy, name)
        setattr(self, name, found)  # next time it is found here
        return found

    def matmul(self, a: Any, b: Any) -> Any:
        """``a @ b`` times the factor, for matrices or stacks of them.

        Args:
            a: ``(..., m, k)``.
            b: ``(..., k, n)``, with the same dimensions in front, or with none.

        Returns:
            ``(..., m, n)``.
        """
        fronts = {shape for shape in (a.shape[:-2], b.shape[:-2]) if shape}
        known = a.dtype == b.dtype and a.dtype.name in _CUDA_TYPES and min(a.ndim, b.ndim) > 1
        if not (known and len(fronts) < 2 and a.size and b.size):
            made = self.cupy.matmul(a, b)
            return made if self._factor == 1 else made * made.dtype.type(self._factor)
        stack = fronts.pop() if fronts else ()
        out = self.cupy.empty((*stack, a.shape[-2], b.shape[-1]), a.dtype)
        self._enqueue(a, b, out, math.prod(stack))
        return out

    def _enqueue(self, a: Any, b: Any, out: Any, count: int) -> None:
        """Columns come first in cuBLAS, which therefore computes ``out.T = b.T @ a.T``."""
        kind = getattr(self.cupy.cuda.runtime, _CUDA_TYPES[a.dtype.name])
        factor, zero = self._factors["float64" if a.dtype == "float64" else "float32"]
        (m, n), k = out.shape[-2:], a.shape[-1]
        turned, operands = [], []
        for matrix in (b, a):
            stored, is_turned = self._stored(matrix)
            turned.append(int(is_turned))
            operands.append((stored, _distance(stored)))
        (right, right_step), (left, left_step) = operands
        cublas.multiply(
            self.cupy, *turned, n, m, k,
            factor.ctypes.data, right.data.ptr, kind, right.shape[-1], right_step,
            left.data.ptr, kind, left.shape[-1], left_step,
            zero.ctypes.data, out.data.ptr, kind, n, m * n, count,
            self._compute(a), self.cupy.cuda.cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    def _compute(self, like: Any) -> int:
        """The compute type for operands of a type; only float32 is rounded."""
        if like.dtype == "float32":
            return compute_type(self)
        name = "CUBLAS_COMPUTE_64F" if like.dtype == "float64" else "CUBLAS_COMPUTE_32F"
        return int(getattr(self.cupy.cuda.cublas, name))

    def _stored(self, matrix: Any) -> tuple[Any, bool]:
        """An array whose rows lie one after another, and whether the matrix is its transpose."""
        if matrix.flags.c_contiguous:
            return matrix, False
        turned = matrix.swapaxes(-1, -2)
        if turned.flags.c_contiguous:
            return turned, True
        return self.cupy.ascontiguousarray(matrix), False


@functools.cache
def products(cupy: Any, precision: str = "float32", factor: float = 1.0) -> Any:
    """``cupy`` with other matrix products.

    The same arguments give the same object, because compiled kernels are kept by it.

    Args:
        cupy: the module.
        precision: a name of :data:`PRECISIONS`.
        factor: multiplies each product.
    """
    return _Products(cupy, precision, factor)


def precision_of(module: Any) -> str:
    """The precision of products, a name of :data:`PRECISIONS`.

    Args:
        module: ``cupy``, or a result of :func:`products`.
    """
    return module.precision if isinstance(module, _Products) else "float32"


def compute_type(xp: Any) -> int:
    """The compute type of cuBLAS for products, a ``cublasComputeType_t``.

    Args:
        xp: ``cupy``, or a result of :func:`products`.
    """
    return int(getattr(xp.cuda.cublas, PRECISIONS[precision_of(xp)]))


@implementation("matmul", "matmul_grad", backend="gpu", per_operator=True)
def _scaled(type: str) -> Callable[..., Any]:
    """Takes products with a factor."""
    declared = opdef.get(type).kernel

    def kernel(module: Any, *values: Any, alpha: float = 1.0, **attrs: Any) -> Any:
        if alpha == 1:
            return None
        cupy = module.cupy if isinstance(module, _Products) else module
        return declared(products(cupy, precision_of(module), alpha), *values, alpha=1.0, **attrs)

    return kernel


def _distance(stored: Any) -> int:
    """Elements from one matrix of a stack to the next: 0 for a single matrix that serves all."""
    return math.prod(stored.shape[-2:]) if stored.ndim > 2 else 0
