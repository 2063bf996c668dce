"""Primitives and products that several threads work on, where these give the bits of one thread.

How the library divides its work, and so the order of its sums, may depend on the number of threads.
It rarely does for forward passes. Both ways are tried on random numbers, and the way of several
threads is taken only if no bit differs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.kernels import onednn
from dpexec.engine.kernels.divided import part_of
from dpexec.engine.kernels.onednn import BIAS, DST, SCRATCHPAD, SRC, WEIGHTS, Primitive

__all__ = ["by_rows", "product_threads", "with_threads"]

_WORK = 3 * 2**18
"""Products of numbers from which on more threads pay: 15 us on one core. Threads that worked a
moment ago still spin, and begin at once."""
_TOGETHER = (1, 48)
"""Rows that stay together: the library's blocks have 4, 6, 16 or 24 rows, and the rows of a block
that is not whole may have other bits."""
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


def by_rows(
    one: Primitive, threads: int, rows: int, make: Callable[[int], Primitive], work: int
) -> tuple[int, Sequence[Primitive]]:
    """Primitives of one thread for the rows of each part, if they give the same bits; else none.

    A row of the operands and of the result that belong to a part is a row of a matrix, or a matrix
    of a batch. All that threads do before and after with these rows is then done in one cache.

    Args:
        one: the primitive for all rows.
        threads: how many there may be.
        rows: how many rows there are.
        make: makes the primitive for some rows.
        work: products of numbers that it computes.

    Returns:
        How many rows stay together, and the primitives.
    """
    if threads == 1 or work < _WORK:
        return 1, ()
    if threads not in one.parts:
        one.parts[threads] = next(_parts(one, threads, rows, make), (1, ()))
    return one.parts[threads]


def _parts(
    one: Primitive, threads: int, rows: int, make: Callable[[int], Primitive]
) -> Iterator[tuple[int, Sequence[Primitive]]]:
    """The ways to divide a product that give the same bits."""
    for together in _TOGETHER:
        slices = [part_of(rows, part, threads, together) for part in range(threads)]
        if all(at.start < at.stop for at in slices):
            parts = [make(at.stop - at.start) for at in slices]
            if _are_same(one, parts, slices, rows):
                yield together, parts


def _are_same(
    one: Primitive, parts: Sequence[Primitive], slices: Sequence[slice], rows: int
) -> bool:
    """Whether the parts of a product give the bits of the whole."""
    sizes = {which: one.layout(which).nbytes // 4 for which in (*_INPUTS, DST)}
    given = {which: _random(sizes[which]) for which in _INPUTS if sizes[which]}
    wanted = _result(one, given)
    for part, at in zip(parts, slices, strict=True):
        own = dict(given)
        for which in (SRC, WEIGHTS):
            size = part.layout(which).nbytes // 4
            if size != sizes[which]:
                if size * rows != sizes[which] * (at.stop - at.start):
                    return False
                own[which] = given[which].reshape(rows, -1)[at].ravel()
            elif not part.layout(which).is_like(one.layout(which)):
                return False
        if _result(part, own).tobytes() != wanted.reshape(rows, -1)[at].tobytes():
            return False
    return True


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
