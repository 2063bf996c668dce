"""Calls of kernels from Python, for operators on sequences outside a step of code.

Their number of rows is known only when the operator runs. Then one call from Python runs the
operator, for all time steps (:class:`dpexec.engine.kernels.loop.Loop`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.ir import opdef
from dpexec.engine.kernels import onednn, onednn_calls
from dpexec.engine.kernels.blas import gemm, sgemm_address
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.machine import Kernel
from dpexec.engine.kernels.tables import run

__all__ = ["Call", "multiplies", "product", "run_call", "transposed_product", "with_arguments"]

Call = tuple[Kernel, tuple[Any, ...]]
"""A kernel with its arguments: integers."""

_FACTOR = int(np.float64(1).view(np.int64))
"""The factor of products, as a word."""


def run_call(call: Call) -> None:
    """Call a kernel without the GIL.

    Args:
        call: the kernel and its arguments.

    Raises:
        RuntimeError: the kernel refuses the values.
        TypeError: it takes another number of arguments.
    """
    kernel, arguments = call
    kernel.check(arguments)
    words = np.array(arguments, np.int64)
    table = np.array([[kernel.address, address(words)]])
    if run(address(table), 0, 1) != 1:
        raise RuntimeError("a kernel of an operator on sequences failed")


def multiplies() -> bool:
    """Whether machine code can call matrix products of a library here."""
    return onednn.available() or sgemm_address() != 0


def product(
    sizes: tuple[Any, Any, Any],
    operands: tuple[Any, Any, Any],
    widths: tuple[int, int],
    flipped: bool = False,
    turned: bool = False,
) -> Call:
    """A product ``out = a @ b`` of row-major float32 matrices.

    Args:
        sizes: ``(m, n, k)``.
        operands: addresses of a, b and out.
        widths: row lengths of a and b; those of out are n.
        flipped: whether a is transposed, ``(k, m)`` in memory.
        turned: whether b is transposed, ``(n, k)`` in memory.
    """
    (m, n, k), (a, b, out), (lda, ldb) = sizes, operands, widths
    if onednn.available():
        by_onednn = (*onednn.thread_functions(), 1, 0, onednn.sgemm_address())
        matrices = (m, n, k, _FACTOR, a, lda, b, ldb, out)
        return onednn_calls.product, (*by_onednn, flipped, turned, *matrices, False, 0, False)
    by_blas = (sgemm_address(), 0, 1, flipped, turned, m, n, k, _FACTOR)
    return gemm, (*by_blas, a, lda, 0, b, ldb, 0, 0, out, n, 0)


def transposed_product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``a.T @ b``; there may be gaps between the rows.

    Args:
        a: ``(k, m)``.
        b: ``(k, n)``.
    """
    rows_are_dense = a.strides[1] == b.strides[1] == 4
    if a.dtype != np.float32 or not rows_are_dense or not a.size or not multiplies():
        return a.T @ b
    out = np.empty((a.shape[1], b.shape[1]), np.float32)
    widths = a.strides[0] // 4, b.strides[0] // 4
    operands = address(a), address(b), address(out)
    run_call(product((*out.shape, len(a)), operands, widths, flipped=True))
    return out


def with_arguments(**own: Any) -> Callable[[str], Callable[..., Any]]:
    """A per-operator implementation: the declared kernel with arguments that call machine code.

    Args:
        own: these arguments, by name.
    """

    def made(type: str) -> Callable[..., Any]:
        return functools.partial(opdef.get(type).kernel, **own)

    return made
