"""Calls of kernels on parts of their arrays: on one part, or on all, each by another thread.

The threads are those of the library of products and convolutions. A thread works on the same share
of the rows as there, so that it finds them in its own cache: on two cores, reading 256 kB that the
other core has just written takes 0.1 ms, and reading one's own 0.01. Every row, and every element
of an array without rows, is computed by one call as before, so the bits are those of one thread.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dpexec.engine.kernels import onednn
from dpexec.engine.kernels.atomics import store
from dpexec.engine.kernels.collectives import USUAL
from dpexec.engine.kernels.compiling import Lazily, inline
from dpexec.engine.kernels.machine import (
    Count,
    Integers,
    Kernel,
    Rest,
    call,
    count,
    integers,
    intrinsic,
    kernel,
    own_words,
)
from dpexec.engine.kernels.tables import DENORMALS_ARE_ZERO, set_float_mode, ticks
from dpexec.engine.kernels.values import Buffer, Constant, Packed, Sized, Value

ir, types = Lazily("llvmlite.ir"), Lazily("numba.types")
cgutils = Lazily("numba.core.cgutils")

__all__ = ["divided_among", "in_c", "part_of", "shifted"]

LEAST = 4096
"""Elements from which on threads pay: 4 us for an addition, where others wrote half of them."""
WORTH_WAKING = 2**18
"""Elements for which threads that sleep are woken: that takes 0.05 ms."""
_AWAKE = 150_000
"""Ticks after its last work in which a thread surely spins: less than ``openmp.impatient`` says."""
BLOCK = 64
"""Elements that stay together where elements are divided: four lines of a cache."""
_SIZES = {"floats": 4, "words": 4, "doubles": 8, "integers": 8, "octets": 1}
_THREADS, _NUMBER_OF, _TEAM_OF, _BODY, _ADDRESS, _PLAN, _ROOM, _REFUSED, _CHOSEN = range(1, 10)
_GIVEN = 13
"""Positions of arguments of :func:`_divided`."""


@intrinsic
def in_c(typing_context: Any, address: Any, *arguments: Any) -> Any:
    """Call the C function at an address with words as arguments; it returns an ``int``."""
    signature = types.int64(types.int64, types.StarArgTuple(arguments))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words = cgutils.unpack_tuple(builder, args[1])
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * len(words))
        made = builder.call(builder.inttoptr(args[0], kind.as_pointer()), words)
        return builder.sext(made, ir.IntType(64))

    return signature, generate


@kernel
def shifted(address: Count, shifts: Count, more: Rest) -> int:
    """Call a kernel on parts of arrays: with some of its arguments increased.

    Arguments: address of the kernel; how many arguments are increased; for each, its position and
    the increase; then the arguments of that kernel.
    """
    inner = more + 16 * shifts
    words = own_words(inner)
    for i in range(shifts):
        words[count(more, 2 * i)] += count(more, 2 * i + 1)
    status = call(address, inner)
    for i in range(shifts):
        words[count(more, 2 * i)] -= count(more, 2 * i + 1)
    return status


# ---- a plan: how many ways to divide; of each the position of the number that is divided, how much
# of that stays together (negative: the position of that number), and the number of arrays; of each
# array its position, the bytes of an element, whether every thread has one of its own, how many
# arguments are multiplied, and these


@functools.cache
def _plan(kernel: Kernel, block: int) -> Constant:
    """How a kernel's arguments differ from part to part, see :attr:`Kernel.parts`.

    Args:
        kernel: the kernel.
        block: elements that stay together where elements are divided, not rows.
    """
    found: list[int] = []
    for way in kernel.parts:
        head, _, arrays = way.partition(":")
        number, _, together = head.partition("%")
        listed = [_array(kernel, text) for text in arrays.split()]
        whole = block if len(listed[0]) == 4 else 1  # it has no factors: these are elements
        whole = -kernel.position(together) if together else whole
        found += [kernel.position(number), whole, len(listed), *(w for one in listed for w in one)]
    return Constant(np.array([len(kernel.parts), *found], np.int64))


def _array(kernel: Kernel, text: str) -> list[int]:
    own, text = text.startswith("@"), text.removeprefix("@")
    name, *factors = text.split("*")
    positions = map(kernel.position, factors)
    return [kernel.position(name), _SIZES[kernel.kind(name)], own, len(factors), *positions]


def divided_among(
    packed: Packed, kernel: Kernel, arguments: tuple[Any, ...], least: Sized | None = None
) -> tuple[Kernel, tuple[Any, ...]]:
    """The call of a kernel, whose work several threads divide if it is long enough.

    Args:
        packed: says how many there are.
        kernel: one that has parts.
        arguments: of the call.
        least: how much work threads pay for, awake or not; None: as usual.
    """
    threads = packed.threads
    if threads == 1 or not kernel.parts or not onednn.available():
        return kernel, arguments
    size = threads * len(arguments)
    room = Value((size,), np.dtype(np.int64), Buffer(8 * size))
    return _divided, (
        *(onednn.entry_address("GOMP_parallel"), threads),
        *map(onednn.entry_address, ("omp_get_thread_num", "omp_get_num_threads")),
        *(_part, kernel, _plan(kernel, BLOCK), room, 0, 0),
        *(packed.awake, *(least or count for count in (LEAST, WORTH_WAKING))),
        *(len(arguments), *arguments),
    )


def part_of(total: int, part: int, parts: int, whole: int = 1) -> slice:
    """The rows of one of some parts, as :func:`_part` divides them, ``whole`` ones together."""
    blocks = -(-total // whole)
    first, end = (-(-blocks * number // parts) * whole for number in (part, part + 1))
    return slice(min(first, total), min(end, total))


@inline
def _step(plan: Any, at: int, given: int) -> int:
    """The bytes by which an array of a plan advances from one row to the next."""
    step = plan[at + 1]
    for i in range(plan[at + 3]):
        step *= count(given, plan[at + 4 + i])
    return step


@inline
def _together(plan: Any, at: int, given: int) -> int:
    """How many rows or elements stay together."""
    whole = plan[at + 1]
    return count(given, -whole) if whole < 0 else whole


@kernel
def _part(more: Rest) -> int:
    """Call a kernel on the part of the thread that runs this. Arguments: of :func:`_divided`."""
    before = set_float_mode(np.int32(DENORMALS_ARE_ZERO))
    thread, team = in_c(count(more, _NUMBER_OF)), in_c(count(more, _TEAM_OF))
    parts = count(more, _THREADS)
    plan, at = integers(more, _PLAN), count(more, _CHOSEN)
    n, given = count(more, _GIVEN), more + 8 * (_GIVEN + 1)
    whole, total = _together(plan, at, given), count(given, plan[at])
    blocks = (total + whole - 1) // whole
    for part in range(thread, parts, team):  # the library may have fewer threads
        first = min(total, (blocks * part + parts - 1) // parts * whole)
        end = min(total, (blocks * (part + 1) + parts - 1) // parts * whole)
        own = count(more, _ROOM) + 8 * n * part
        words = own_words(own)
        for i in range(n):
            words[i] = count(given, i)
        words[plan[at]] = end - first
        array = at + 3
        for _ in range(plan[at + 2]):
            times = part if plan[array + 2] else first
            words[plan[array]] += times * _step(plan, array, given)
            array += 4 + plan[array + 3]
        if first < end and call(count(more, _ADDRESS), own) != 0:
            store(more + 8 * _REFUSED, 1)
    set_float_mode(before)
    return 0


@kernel
def _divided(
    parallel: Count, threads: Count, number_of: Count, team_of: Count, body: Count, address: Count,
    plan: Integers, room: Integers, refused: Count, chosen: Count, awake: Integers, least: Count,
    worth_waking: Count, n: Count, more: Rest,
) -> int:  # fmt: skip
    """Call a kernel, on all threads if its work is long enough.

    Arguments: address of the function that runs another one on all threads, their number, addresses
    of the functions that tell the number of the thread and of all, of :func:`_part` and of the
    kernel, the plan of its parts, memory for its arguments on all threads, a word that tells
    whether a part refused its values, one for the chosen way, one for the time when the threads
    had work last, elements from which on threads pay that are awake, and that sleep, the number of
    the kernel's arguments, and these.
    """
    at = 1
    for _ in range(plan[0] - 1):  # the outermost loop that has more than one round
        if count(more, plan[at]) != 1:
            break
        arrays, at = plan[at + 2], at + 3
        for _ in range(arrays):
            at += 4 + plan[at + 3]
    rounds, first = count(more, plan[at]), at + 3
    elements = rounds * _step(plan, first, more) // plan[first + 1]
    enough = least if ticks() - awake[0] < _AWAKE else worth_waking
    if rounds <= _together(plan, at, more) or elements < enough:
        return call(address, more)
    start = more - 8 * (_GIVEN + 1)
    words = own_words(start)
    words[_REFUSED], words[_CHOSEN] = 0, at
    mode = set_float_mode(np.int32(USUAL))  # threads that begin now may take it over
    in_c(parallel, body, start, threads, 0)
    set_float_mode(mode)
    awake[0] = ticks()
    return words[_REFUSED]
