"""Kernels that call oneDNN, with one thread or several."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.ir.sizes import Counts, NeedsNumber, Rows
from dpexec.engine.kernels import onednn
from dpexec.engine.kernels.atomics import give_way, load, store, take
from dpexec.engine.kernels.collectives import USUAL
from dpexec.engine.kernels.compiling import Lazily, inline
from dpexec.engine.kernels.divided import in_c
from dpexec.engine.kernels.lowering import Code, Constant, Sized, Value
from dpexec.engine.kernels.machine import (
    Count,
    Floats,
    Integers,
    Number,
    Rest,
    as_word,
    call,
    count,
    intrinsic,
    kernel,
)
from dpexec.engine.kernels.onednn_epilogues import scales_of
from dpexec.engine.kernels.tables import set_float_mode, ticks

ir, types = Lazily("llvmlite.ir"), Lazily("numba.types")

__all__ = ["as_before", "as_the_team", "emit", "execute", "noted", "product", "unless"]

_PLAIN, _TRANSPOSED = ord("N"), ord("T")
_PATIENCE = 2**24
"""Turns of some 0.5 us to wait for another thread, which a process that was forked may lack."""


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


@inline
def as_the_team(awake: Any) -> Any:
    """Let this thread keep denormal numbers in what it may divide, as the library's threads do.

    One thread alone does it, too, so that the bits are the same. The mode of the others is left as
    it is: they may work for other libraries.

    Args:
        awake: of a predictor; elsewhere one thread works, and denormal numbers count as zero.
    """
    return set_float_mode(np.int32(USUAL)) if as_word(awake) else np.int32(0)


@inline
def as_before(awake: Any, mode: Any) -> None:
    """Give this thread the mode back that :func:`as_the_team` returned."""
    if as_word(awake):
        set_float_mode(mode)


@kernel
def execute(
    threads_of: Count, set_threads: Count, team: Count, awake: Integers, set_address: Count,
    run: Count, primitive: Count, stream: Count, n: Count, more: Rest,
) -> int:  # fmt: skip
    """Run a primitive.

    Arguments: addresses of the functions that get and set the number of threads, how many threads
    work on it, where it is noted when several did; addresses of the functions that set the address
    of an array and execute a primitive; the primitive, the stream, the number of arguments, for
    each its number and memory object, and for each the address of its array.
    """
    threads = in_c(threads_of)
    in_c(set_threads, team)
    status = 0
    for i in range(n):
        status |= in_c(set_address, count(more, 1 + 2 * i), count(more, 2 * n + i))
    if status == 0:
        mode = as_the_team(awake)
        status = in_c(run, primitive, stream, n, more)
        as_before(awake, mode)
    in_c(set_threads, threads)
    if team > 1:
        awake[0] = ticks()
    return status


@kernel
def _once(done: Integers, source: Count, address: Count, more: Rest) -> int:
    """Call a kernel unless it was called for this source, by this thread or another one.

    Arguments: the address of the source for which it was called, and a word that is not 0 while a
        thread calls it; the address of the source, that of the kernel, its arguments.
    """
    called = as_word(done)
    if load(called) == source:
        return 0
    turns = 0
    while take(called + 8) != 0 and turns < _PATIENCE:
        give_way()
        turns += 1
    status = 0
    if load(called) != source:
        status = call(address, more)
        if status == 0:
            store(called, source)
    store(called + 8, 0)
    return status


@kernel
def unless(done: Integers, source: Count, address: Count, more: Rest) -> int:
    """Call a kernel if :func:`_once` will call the one behind it.

    Arguments: as for that.
    """
    return 0 if done[0] == source else call(address, more)


@kernel
def product(
    threads_of: Count, set_threads: Count, team: Count, awake: Integers, function: Count,
    flipped: Count, turned: Count, m: Count, n: Count, k: Count, alpha: Number, a: Count,
    a_width: Count, b: Count, b_width: Count, out: Floats, biased: Count, bias: Floats,
    rectified: Count,
) -> int:  # fmt: skip
    """``out = alpha * a @ b``, and a bias for every column, and relu.

    Arguments: addresses of the functions that get and set the number of threads, how many threads
    work on it, where it is noted when several did, address of sgemm; whether a and b are
    transposed, m, n, k, alpha, a, its row length, b, its row length, out, whether there is a bias,
    the bias, and whether relu is applied.
    """
    threads = in_c(threads_of)
    in_c(set_threads, team)
    mode = as_the_team(awake)
    status = _sgemm(
        function, flipped, turned, m, n, k, alpha, a, a_width, b, b_width, as_word(out), n
    )
    as_before(awake, mode)
    in_c(set_threads, threads)
    if team > 1:
        awake[0] = ticks()
    if status == 0 and biased:
        for i in range(m):
            for j in range(n):
                out[i * n + j] += bias[j]
    if status == 0 and rectified:
        for i in range(m * n):
            value = out[i]
            out[i] = value if value > 0 or value != value else np.float32(0)
    return status


def noted(code: Code) -> Constant | int:
    """Where kernels note when several threads had work last; 0: there is one thread."""
    return 0 if code.packed is None else code.packed.awake


def emit(
    code: Code,
    arguments: Mapping[int, Value | Constant],
    primitive: Callable[[Counts], onednn.Primitive],
    rows: Rows | None = None,
    once: tuple[Any, ...] = (),
) -> None:
    """Emit a call of a primitive on arrays, which must have the layouts that it needs.

    Args:
        code: takes the call.
        arguments: the arrays, by number of the argument.
        primitive: gives the primitive for the numbers of rows of a batch.
        rows: the open numbers of rows, if the primitive depends on them.
        once: two words and an array: it is called when the first word is not the array's address,
            which it then becomes. The second word is not 0 while a thread calls it.
    """
    examples = [primitive(count) for count in ((rows.example, rows.capacity) if rows else ((),))]
    room = max(example.scratch for example in examples)
    if room:
        arguments = {**arguments, onednn.SCRATCHPAD: code.scratch(room, dtype=np.uint8)}

    @functools.lru_cache(limit_of("primitives of a call"))
    def found(count: Counts) -> onednn.Primitive:
        made = primitive(count)
        if made.scratch > room:
            raise NeedsNumber("more temporary memory than for other numbers of rows")
        return made

    def memory(number: int) -> Sized:
        given = arguments[number]
        if number > scales_of(0) and isinstance(given, Constant):  # it has no layout for scales
            vector = onednn.vector_memory(given.array.size)
            return Sized(lambda count: vector)
        return Sized(lambda count: found(count).memory(number))

    memories = [(number, memory(number)) for number in arguments]
    code.emit(
        *((_once, *once, execute.address) if once else (execute,)),
        *onednn.thread_functions(), Sized(lambda count: found(count).threads), noted(code),
        *onednn.execute_functions(), Sized(lambda count: found(count).primitive),
        onednn.stream(), len(arguments),
        *itertools.chain(*memories), *arguments.values(),
    )  # fmt: skip
