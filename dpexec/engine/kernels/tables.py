"""Tables of kernel calls: one call from Python runs a whole table, releasing the GIL once.

A row holds the address of a kernel and the address of its arguments.
"""

from __future__ import annotations

import platform
import time
from typing import Any

import numpy as np

from dpexec.engine.kernels.compiling import Lazily, entry
from dpexec.engine.kernels.machine import call, count, intrinsic, own_words

ir, types = Lazily("llvmlite.ir"), Lazily("numba.types")
cgutils = Lazily("numba.core.cgutils")

__all__ = ["DENORMALS_ARE_ZERO", "run", "run_timed", "set_float_mode", "ticks"]

_X86 = platform.machine().lower() in ("x86_64", "amd64")
DENORMALS_ARE_ZERO = 0x9FC0
"""The usual mode of x86 (no traps, round to nearest), except that denormal operands and results
count as zero: arithmetic on them takes a hundred times longer."""


@intrinsic
def set_float_mode(typing_context: Any, mode: Any) -> Any:
    """Set this thread's floating-point mode; returns the mode before (x86 only)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not _X86:
            return args[0]
        word, byte = ir.IntType(32), ir.IntType(8)
        place = builder.alloca(word)
        pointer = builder.bitcast(place, byte.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer()])
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse.stmxcsr", (), kind), [pointer])
        before = builder.load(place)
        builder.store(args[0], place)
        builder.call(builder.module.declare_intrinsic("llvm.x86.sse.ldmxcsr", (), kind), [pointer])
        return before

    return types.int32(types.int32), generate


@entry
def run(table: int, first: int, end: int) -> int:
    """Run rows of a table of (kernel, arguments) without the GIL.

    Args:
        table: address of int64 ``(n, 2)``, addresses.
        first: the first row.
        end: one behind the last row.

    Returns:
        ``end``, or the number of the row whose kernel refused its values.
    """
    before = set_float_mode(np.int32(DENORMALS_ARE_ZERO))
    row = first
    while row < end and call(count(table, 2 * row), count(table, 2 * row + 1)) == 0:
        row += 1
    set_float_mode(before)
    return row


_CLOCK = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)
"""The clock of ``time.perf_counter``: the first on macOS, the second elsewhere."""


@intrinsic
def _clock(typing_context: Any) -> Any:
    """Nanoseconds on the clock of ``time.perf_counter``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, which = ir.IntType(64), ir.IntType(32)
        kind = ir.FunctionType(which, [which, word.as_pointer()])
        function = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        place = cgutils.alloca_once(builder, word, size=2)
        builder.call(function, [which(_CLOCK), place])
        seconds = builder.load(place)
        rest = builder.load(builder.gep(place, [which(1)]))
        return builder.add(builder.mul(seconds, word(1_000_000_000)), rest)

    return types.int64(), generate


@intrinsic
def _cycles(typing_context: Any) -> Any:
    """The processor's own counter, which takes half as long to read."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        counter = builder.module.declare_intrinsic("llvm.readcyclecounter", (), kind)
        return builder.call(counter, [])

    return types.int64(), generate


ticks = _cycles if _X86 else _clock
"""The time in some unit: other processors may not allow programs to read the counter."""


@entry
def run_timed(table: int, first: int, end: int, notes: int, at: int) -> int:
    """Like :func:`run`, and note the time after every row.

    Args:
        table: address of int64 ``(n, 2)``, addresses.
        first: the first row.
        end: one behind the last row.
        notes: address of int64, where ``end - first + 3`` numbers are written: the time at the
            begin in nanoseconds, the processor's counter then and after every row, the time at
            the end.
        at: position of the first of them.

    Returns:
        ``end``, or the number of the row whose kernel refused its values.
    """
    stamps = own_words(notes)
    before = set_float_mode(np.int32(DENORMALS_ARE_ZERO))
    stamps[at] = _clock()
    at += 1
    stamps[at] = ticks()
    row = first
    while row < end and call(count(table, 2 * row), count(table, 2 * row + 1)) == 0:
        row += 1
        at += 1
        stamps[at] = ticks()
    stamps[at + 1] = _clock()
    set_float_mode(before)
    return row
