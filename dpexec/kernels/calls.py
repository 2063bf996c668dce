"""Calls of kernels that are made for one run: as many as sequences have steps.

What depends on lengths of sequences is no part of a step of code: it is known when the operator
runs. Then a table of calls is made, all at once, and one call from Python runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.kernels import onednn, onednn_calls
from dpexec.kernels.blas import gemm, sgemm_address
from dpexec.kernels.machine import Kernel, run

__all__ = ["Calls", "calls", "multiplies", "place", "product", "run_calls", "transposed_product"]

Calls = tuple[Kernel, np.ndarray[Any, Any]]
"""A kernel with the words of its arguments, ``(calls, arguments)``."""


def place(array: np.ndarray[Any, Any], rows: Any = 0, column: int = 0) -> Any:
    """Address of a row, or of several, of a matrix.

    Args:
        array: ``(n, width)``.
        rows: number of the row, or an array of them.
        column: where to begin in the row.
    """
    return array.ctypes.data + array.strides[0] * rows + array.itemsize * column


def calls(kernel: Kernel, count: int, *arguments: Any) -> Calls:
    """A number of calls of one kernel.

    Args:
        kernel: the kernel.
        count: how often it is called.
        arguments: integers or floats, the same for all calls, or an array with one for each.
    """
    words = np.empty((count, len(arguments)), np.int64)
    for column, argument in enumerate(arguments):
        words[:, column] = (
            np.float64(argument).view(np.int64) if isinstance(argument, float) else argument
        )
    return kernel, words


def run_calls(columns: Sequence[Calls], first: int = 0) -> None:
    """The first call of each kernel, then the second of each, and so on, without the GIL.

    Args:
        columns: as many calls of each kernel.
        first: how many calls of the first round are left out.

    Raises:
        RuntimeError: a kernel fails.
    """
    rounds = len(columns[0][1])
    table = np.empty((rounds, len(columns), 2), np.int64)
    for number, (kernel, words) in enumerate(columns):
        table[:, number, 0] = kernel.address
        table[:, number, 1] = place(words, np.arange(rounds))
    rows = table.reshape(-1, 2)
    if run(rows, min(first, len(rows)), len(rows)) != len(rows):
        raise RuntimeError("a product of matrices failed")


def multiplies() -> bool:
    """Whether there is a library whose products machine code can call."""
    return onednn.available() or sgemm_address() != 0


def product(
    count: int,
    sizes: tuple[Any, Any, Any],
    operands: tuple[Any, Any, Any],
    widths: tuple[int, int],
    flipped: bool = False,
) -> Calls:
    """Products ``out = a @ b`` of row-major float32 matrices.

    Args:
        count: how many.
        sizes: ``(m, n, k)``; each a number, or an array with one for each product.
        operands: addresses of a, b and out, likewise.
        widths: row lengths of a and b; those of out are n.
        flipped: whether a is transposed, ``(k, m)`` in memory.
    """
    (m, n, k), (a, b, out), (lda, ldb) = sizes, operands, widths
    if onednn.available():
        by_onednn = (*onednn.thread_functions(), onednn.sgemm_address())
        matrices = (m, n, k, 1.0, a, lda, b, ldb, out)
        return calls(onednn_calls.product, count, *by_onednn, flipped, False, *matrices, False, 0)
    by_blas = (sgemm_address(), 0, 1, flipped, False, m, n, k, 1.0)
    return calls(gemm, count, *by_blas, a, lda, 0, b, ldb, 0, 0.0, out, n, 0)


def transposed_product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``a.T @ b``; rows may be longer in memory than they are.

    Args:
        a: ``(k, m)``.
        b: ``(k, n)``.
    """
    rows_are_dense = a.strides[1] == b.strides[1] == 4
    if a.dtype != np.float32 or not rows_are_dense or not a.size or not multiplies():
        return a.T @ b
    out = np.empty((a.shape[1], b.shape[1]), np.float32)
    widths = a.strides[0] // 4, b.strides[0] // 4
    operands = place(a), place(b), place(out)
    run_calls([product(1, (*out.shape, len(a)), operands, widths, flipped=True)])
    return out
