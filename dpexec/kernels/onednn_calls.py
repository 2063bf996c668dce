"""Kernels that call oneDNN: in the thread that runs them, whatever the library's own threads."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from dpexec.kernels.machine import count, floats, intrinsic, kernel, number

__all__ = ["execute", "product"]

_PLAIN, _TRANSPOSED = ord("N"), ord("T")


@intrinsic
def _c(typing_context: Any, address: Any, *arguments: Any) -> Any:
    """Call the function in C at an address with words; it returns an ``int``."""
    signature = types.int64(types.int64, types.StarArgTuple(arguments))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words = cgutils.unpack_tuple(builder, args[1])
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * len(words))
        made = builder.call(builder.inttoptr(args[0], kind.as_pointer()), words)
        return builder.sext(made, ir.IntType(64))

    return signature, generate


@intrinsic
def _sgemm(
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
    c: Any,
    ldc: Any,
) -> Any:
    """Call ``dnnl_sgemm``, which overwrites ``c``; returns its status."""
    word, real = types.int64, types.float32
    signature = word(*[word] * 6, real, *[word] * 6)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        char, long, single = ir.IntType(8), ir.IntType(64), ir.FloatType()
        inputs = [char] * 2 + [long] * 3 + [single] + [long] * 4 + [single, long, long]
        flips = [
            builder.select(
                builder.icmp_signed("!=", flag, ir.Constant(long, 0)),
                ir.Constant(char, _TRANSPOSED),
                ir.Constant(char, _PLAIN),
            )
            for flag in args[1:3]
        ]
        kind = ir.FunctionType(ir.IntType(32), inputs)
        function = builder.inttoptr(args[0], kind.as_pointer())
        zero = ir.Constant(single, 0)
        made = builder.call(function, [*flips, *args[3:11], zero, *args[11:]])
        return builder.sext(made, long)

    return signature, generate


@kernel
def execute(p: int) -> int:
    """Run a primitive.

    Arguments: addresses of the functions that get and set the number of threads, set the address
    of an array and execute a primitive; the primitive, the stream, the number of arguments, for
    each its number and memory object, and for each the address of its array.
    """
    threads = _c(count(p, 0))
    _c(count(p, 1), 1)
    n = count(p, 6)
    status = 0
    for i in range(n):
        status |= _c(count(p, 2), count(p, 8 + 2 * i), count(p, 7 + 2 * n + i))
    if status == 0:
        status = _c(count(p, 3), count(p, 4), count(p, 5), n, p + 8 * 7)
    _c(count(p, 1), threads)
    return status


@kernel
def product(p: int) -> int:
    """``out = alpha * a @ b``, and a bias for every column.

    Arguments: addresses of the functions that get and set the number of threads and of sgemm;
    whether a and b are transposed, m, n, k, alpha, a, its row length, b, its row length, out,
    whether there is a bias, and the bias.
    """
    threads = _c(count(p, 0))
    _c(count(p, 1), 1)
    m, n = count(p, 5), count(p, 6)
    status = _sgemm(
        count(p, 2),
        count(p, 3),
        count(p, 4),
        m,
        n,
        count(p, 7),
        number(p, 8),
        count(p, 9),
        count(p, 10),
        count(p, 11),
        count(p, 12),
        count(p, 13),
        n,
    )
    _c(count(p, 1), threads)
    if status == 0 and count(p, 14):
        out, bias = floats(p, 13), floats(p, 15)
        for i in range(m):
            for j in range(n):
                out[i * n + j] += bias[j]
    return status
