"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

from dpexec.kernels.blas import gemm, sgemm_address
from dpexec.kernels.lowering import Code, Value, lowering

__all__ = ["matrix_product"]


def matrix_product(
    code: Code,
    a: Value,
    b: Value,
    out: Value,
    sizes: tuple[int, int, int],
    flips: tuple[bool, bool] = (False, False),
    alpha: float = 1.0,
    times: int = 1,
    beta: float = 0.0,
) -> None:
    """``out = alpha * a @ b + beta * out`` for row-major matrices, ``times`` one after another.

    Args:
        code: takes the call.
        a: ``(m, k)``, or ``(k, m)`` if flipped.
        b: ``(k, n)``, or ``(n, k)`` if flipped.
        out: ``(m, n)``.
        sizes: ``(m, n, k)``.
        flips: whether a and b are transposed.
        alpha: factor of the product.
        times: number of matrices in each array.
        beta: factor of what was in ``out``.
    """
    m, n, k = sizes
    rows = (m if flips[0] else k, k if flips[1] else n)
    code.emit(
        gemm,
        *(sgemm_address(), times, *flips, m, n, k, float(alpha)),
        *(a, rows[0], m * k, b, rows[1], k * n),
        *(float(beta), out, n, m * n),
    )


def _all_single(*values: Value | None) -> bool:
    return sgemm_address() != 0 and all(v is None or v.dtype == "float32" for v in values)


def _sizes(x: Value, y: Value, x_dims: int, y_dims: int) -> tuple[int, int, int]:
    return math.prod(x.shape[:x_dims]), math.prod(y.shape[y_dims:]), math.prod(x.shape[x_dims:])


@lowering("mul")
def mul(
    code: Code, x: Value, y: Value, out: Value, *, x_num_col_dims: Any, y_num_col_dims: Any
) -> Any:
    """One product."""
    if not _all_single(x, y):
        return False
    matrix_product(code, x, y, out, _sizes(x, y, x_num_col_dims, y_num_col_dims))


@lowering("mul_grad")
def mul_grad(
    code: Code,
    x: Value,
    y: Value,
    d_out: Value,
    dx: Value | None,
    dy: Value | None,
    *,
    x_num_col_dims: Any,
    y_num_col_dims: Any,
) -> Any:
    """``d_out @ y.T`` and ``x.T @ d_out``."""
    if not _all_single(x, y, d_out):
        return False
    m, n, k = _sizes(x, y, x_num_col_dims, y_num_col_dims)
    if dx is not None:
        matrix_product(code, d_out, y, dx, (m, k, n), (False, True))
    if dy is not None:
        matrix_product(code, x, d_out, dy, (k, n, m), (True, False))
