"""Primitives and products that several threads work on, where these give the bits of one thread.

How the library divides its work, and so the order of its sums, may depend on the number of threads.
It rarely does for forward passes. Both ways are tried on random numbers, and the way of several
threads is taken only if no bit differs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.kernels import onednn
from dpexec.engine.kernels.onednn import BIAS, DST, SCRATCHPAD, SRC, WEIGHTS, Primitive

__all__ = ["product_threads", "with_threads"]

_WORK = 3 * 2**18
"""Products of numbers from which on more threads pay: 15 us on one core. Threads that worked a
moment ago still spin, and begin at once."""
_INPUTS = (SRC, WEIGHTS, BIAS)
_NUMBERS = 8191

Array = np.ndarray[Any, Any]


def with_threads(
    one: Primitive,
    threads: int,
    work: int,
    make: Callable[[], Primitive | None],
    exact: bool = False,
) -> Primitive:
    """The primitive for several threads if it gives the bits of one; else that for one.

    Args:
        one: the primitive for one thread.
        threads: how many there may be.
        work: products of numbers that it computes.
        make: makes the primitive for several threads; None: there is none.
        exact: whether sums are exact, so that their order does not matter: those of integers.
    """
    if threads == 1 or work < _WORK:
        return one
    if threads not in one.same:
        many = make()
        alike = many is not None and _is_same(one, many, exact)
        one.same[threads] = many if alike and many is not None else one
    return one.same[threads]


def _is_same(one: Primitive, many: Primitive, exact: bool) -> bool:
    """Whether two primitives take the same layouts and give the same bits."""
    arguments = (*_INPUTS, DST)
    if not all(many.layout(which).is_like(one.layout(which)) for which in arguments):
        return False
    if exact:
        return True
    sizes = {which: one.layout(which).nbytes for which in _INPUTS}
    given = {which: _random(size // 4) for which, size in sizes.items() if size}
    return _result(one, given).tobytes() == _result(many, given).tobytes()


def _random(size: int) -> Array:
    """Numbers whose sums show in which order they were added."""
    numbers = np.random.default_rng(0).standard_normal(_NUMBERS, dtype=np.float32)
    return np.resize(numbers, size)


class _Argument(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("memory", ctypes.c_void_p))


def _result(primitive: Primitive, given: Mapping[int, Array]) -> Array:
    """What a primitive computes."""
    out = np.zeros(primitive.layout(DST).nbytes // 4, np.float32)
    arrays = {**given, DST: out, SCRATCHPAD: np.empty(max(primitive.scratch, 1), np.uint8)}
    memories = {which: primitive.memory(which) for which in arrays}
    word = ctypes.c_void_p
    set_address, run = (
        ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address)
        for kinds, address in zip(
            ((word, word), (word, word, ctypes.c_int, word)),
            onednn.execute_functions(),
            strict=True,
        )
    )
    listed = (_Argument * len(arrays))()
    for place, (which, array) in enumerate(arrays.items()):
        set_address(int(memories[which]), array.ctypes.data)
        listed[place] = _Argument(which, int(memories[which]))
    with onednn.divided(primitive.threads):
        status = run(int(primitive.primitive), int(onednn.stream()), len(arrays), listed)
    if status:
        raise RuntimeError(f"oneDNN could not try a primitive: status {status}")
    return out


@functools.lru_cache(limit_of("oneDNN primitives"))
def product_threads(sizes: tuple[int, int, int], flips: tuple[bool, bool], threads: int) -> int:
    """How many threads ``sgemm`` may have for a product without other bits than with one.

    Args:
        sizes: ``(m, n, k)``.
        flips: whether the operands are transposed.
        threads: how many there may be.
    """
    m, n, k = sizes
    if threads == 1 or m * n * k < _WORK:
        return 1
    left, right = _random(m * k), _random(k * n)
    one, many = (_product(left, right, sizes, flips, number) for number in (1, threads))
    return threads if one.tobytes() == many.tobytes() else 1


def _product(
    a: Array, b: Array, sizes: tuple[int, int, int], flips: tuple[bool, bool], threads: int
) -> Array:
    m, n, k = sizes
    out = np.zeros((m, n), np.float32)
    char, long, real, word = ctypes.c_char, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
    kinds = (char, char, long, long, long, real, word, long, word, long, real, word, long)
    sgemm = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(onednn.sgemm_address())
    turns = [b"T" if flip else b"N" for flip in flips]
    widths = m if flips[0] else k, k if flips[1] else n
    with onednn.divided(threads):
        status = sgemm(
            *(*turns, m, n, k, 1.0, a.ctypes.data, widths[0], b.ctypes.data, widths[1]),
            *(0.0, out.ctypes.data, n),
        )
    if status:
        raise RuntimeError(f"oneDNN could not try a product: status {status}")
    return out
