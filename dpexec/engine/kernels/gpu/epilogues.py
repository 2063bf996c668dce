"""``fused_gemm_epilogue`` and its gradient: cuBLASLt applies bias and relu after a product.

cuBLASLt is column-major, and a row-major matrix is its transpose in column-major order. So the
product of the transposes is computed in reversed order; its rows are the columns with a bias each.
"""

from __future__ import annotations

from math import prod
from typing import Any

from dpexec.engine.kernels.gpu import cublaslt
from dpexec.engine.kernels.gpu.cublaslt import BIAS, BIAS_GRADIENT, BIAS_RELU, Product, multiply
from dpexec.engine.kernels.gpu.products import compute_type
from dpexec.engine.kernels.implementations import implementation

_EPILOGUES = {"none": BIAS, "relu": BIAS_RELU}


def _there() -> bool:
    return cublaslt.library() is not None


@implementation("fused_gemm_epilogue", backend="gpu", where=_there)
def _forward(
    xp: Any, x: Any, y: Any, bias: Any, *, x_num_col_dims: int = 1, activation: str = "none"
) -> Any:
    """Supports float32 and float16, and sizes for which cuBLASLt has a plan."""
    if not _taken(x, y, bias):
        return None
    out = xp.empty((*x.shape[:x_num_col_dims], y.shape[1]), x.dtype)
    shape = y.shape[1], prod(x.shape[:x_num_col_dims]), y.shape[0]
    product = _product(xp, x, shape, False, _EPILOGUES[activation])
    x, y, bias = (xp.ascontiguousarray(array) for array in (x, y, bias))
    return out if multiply(xp, product, y, x, out, bias) else None


@implementation("fused_gemm_epilogue_grad", backend="gpu", where=_there)
def _gradient(
    xp: Any, x: Any, y: Any, bias: Any, d_out: Any, *, x_num_col_dims: int = 1,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> Any:  # fmt: skip
    """Supports the same values as the operator, if all gradients but d_x are needed."""
    if not (needs[1] and needs[2] and _taken(x, y, bias, d_out)):
        return None
    rows, (depth, columns) = prod(x.shape[:x_num_col_dims]), y.shape
    x, d_out = xp.ascontiguousarray(x), xp.ascontiguousarray(d_out)
    d_y, d_bias = xp.empty(y.shape, x.dtype), xp.empty(bias.shape, x.dtype)
    product = _product(xp, x, (columns, depth, rows), True, BIAS_GRADIENT)
    if not multiply(xp, product, d_out, x, d_y, d_bias):
        return None
    d_x = xp.matmul(d_out.reshape(rows, columns), y.T).reshape(x.shape) if needs[0] else None
    return d_x, d_y, d_bias


def _taken(first: Any, *others: Any) -> bool:
    if first.dtype not in ("float32", "float16"):
        return False
    return bool(first.size) and all(a.dtype == first.dtype and a.size for a in others)


def _product(
    xp: Any, like: Any, shape: tuple[int, int, int], turned: bool, epilogue: int
) -> Product:
    single = like.dtype == "float32"  # only float32 is rounded if product_precision asks for it
    compute = compute_type(xp) if single else xp.cuda.cublas.CUBLAS_COMPUTE_32F
    return Product(like.dtype.name, shape, turned, epilogue, compute)
