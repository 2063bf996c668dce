"""Kernels in machine code, and the loop that runs a sequence of them in one call.

Every kernel has the same signature: it gets the address of its arguments, which lie one after
another as 64-bit words (integers, addresses of arrays, bits of float64 numbers), and returns 0, or
something else if it refuses the values. It unpacks them with :func:`count`, :func:`number`,
:func:`floats` and so on. So a sequence of calls is a table of (kernel, arguments), and one call
from Python, which gives up the GIL once, runs all of it.

numba is optional: nothing here may be imported unless :func:`dpexec.engine.kernels.available` says
so.
"""

from __future__ import annotations

import functools
import platform
import time
from collections.abc import Callable
from typing import Any

import numba.extending
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from dpexec.engine.kernels.compiling import callback, entry

__all__ = [
    "Kernel",
    "call",
    "count",
    "doubles",
    "floats",
    "integers",
    "intrinsic",
    "kernel",
    "number",
    "octets",
    "prefetch",
    "run",
    "run_timed",
    "shifted",
    "words",
]


intrinsic: Any = numba.extending.intrinsic
"""Functions that are written in LLVM's language; to Python they are untyped."""


class Kernel:
    """A kernel, compiled when its address is first asked for.

    Args:
        function: takes the address of its arguments, returns a status.
    """

    def __init__(self, function: Callable[[int], int]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    @functools.cached_property
    def address(self) -> int:
        """Where its machine code is; kept on disk between processes."""
        self._compiled = callback(self.function, "int64(int64)")
        address: int = self._compiled.address
        return address


def kernel(function: Callable[[int], int]) -> Kernel:
    """Make the decorated function a kernel."""
    return Kernel(function)


def _pointer(element: Any) -> Callable[..., Any]:
    """A function that reads argument ``index`` of a kernel as a pointer."""

    @intrinsic
    def load(typing_context: Any, arguments: Any, index: Any) -> Any:
        signature = types.CPointer(element)(types.int64, types.int64)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            target = context.get_value_type(signature.return_type)
            return builder.inttoptr(_word(builder, *args), target)

        return signature, generate

    function: Callable[..., Any] = load
    return function


def _word(builder: Any, arguments: Any, index: Any) -> Any:
    words = builder.inttoptr(arguments, ir.IntType(64).as_pointer())
    return builder.load(builder.gep(words, [index]))


floats = _pointer(types.float32)
"""``floats(arguments, i)``: argument ``i`` as a pointer to float32 numbers."""
doubles = _pointer(types.float64)
"""``doubles(arguments, i)``: argument ``i`` as a pointer to float64 numbers."""
octets = _pointer(types.uint8)
"""``octets(arguments, i)``: argument ``i`` as a pointer to uint8 numbers."""
words = _pointer(types.int32)
"""``words(arguments, i)``: argument ``i`` as a pointer to int32 numbers."""
integers = _pointer(types.int64)
"""``integers(arguments, i)``: argument ``i`` as a pointer to int64 numbers."""


@intrinsic
def count(typing_context: Any, arguments: Any, index: Any) -> Any:
    """``count(arguments, i)``: argument ``i`` as an integer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _word(builder, *args)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def number(typing_context: Any, arguments: Any, index: Any) -> Any:
    """``number(arguments, i)``: argument ``i`` as a float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        double = builder.bitcast(_word(builder, *args), ir.DoubleType())
        return builder.fptrunc(double, ir.FloatType())

    return types.float32(types.int64, types.int64), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """``prefetch(array, i)``: let element ``i`` come from memory while other work goes on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        place = builder.bitcast(builder.gep(args[0], [args[1]]), byte)
        read, keep, data = (ir.Constant(word, number) for number in (0, 3, 1))
        builder.call(function, [place, read, keep, data])
        return context.get_dummy_value()

    return types.void(types.CPointer(types.float32), types.int64), generate


@intrinsic
def call(typing_context: Any, address: Any, arguments: Any) -> Any:
    """``call(address, arguments)``: call the kernel at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        target = builder.inttoptr(args[0], ir.FunctionType(word, [word]).as_pointer())
        return builder.call(target, [args[1]])

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _own_words(typing_context: Any, arguments: Any) -> Any:
    """The arguments of a kernel as a pointer to integers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.int64), generate


@kernel
def shifted(p: int) -> int:
    """Call a kernel on parts of arrays: with some of its arguments increased.

    Arguments: address of the kernel, how many are increased, for each its number and by how much;
    the arguments of that kernel.
    """
    shifts = count(p, 1)
    inner = p + 8 * (2 + 2 * shifts)
    words = _own_words(inner)
    for i in range(shifts):
        words[count(p, 2 + 2 * i)] += count(p, 3 + 2 * i)
    status = call(count(p, 0), inner)
    for i in range(shifts):
        words[count(p, 2 + 2 * i)] -= count(p, 3 + 2 * i)
    return status


_X86 = platform.machine().lower() in ("x86_64", "amd64")
_DENORMALS_ARE_ZERO = 0x9FC0
"""The usual mode of x86 (no traps, round to nearest), but results and operands that are denormal
count as zero: arithmetic on them takes a hundred times longer."""


@intrinsic
def set_float_mode(typing_context: Any, mode: Any) -> Any:
    """Set how this thread's processor treats denormal numbers; returns how it did (x86 only)."""

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


@entry("int64(int64[:, ::1], int64, int64)")
def run(table: np.ndarray[Any, Any], first: int, end: int) -> int:
    """Run rows of a table of (kernel, arguments) without the GIL.

    Args:
        table: int64 array ``(n, 2)`` of addresses.
        first: the first row.
        end: one behind the last row.

    Returns:
        ``end``, or the number of the row whose kernel refused its values.
    """
    before = set_float_mode(np.int32(_DENORMALS_ARE_ZERO))
    row = first
    while row < end and call(table[row, 0], table[row, 1]) == 0:
        row += 1
    set_float_mode(before)
    return row


_CLOCK = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)
"""What ``time.perf_counter`` reads: on macOS, and elsewhere."""


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


_ticks = _cycles if _X86 else _clock  # elsewhere programs may not read the counter


@entry("int64(int64[:, ::1], int64, int64, int64[::1], int64)")
def run_timed(
    table: np.ndarray[Any, Any], first: int, end: int, stamps: np.ndarray[Any, Any], at: int
) -> int:
    """Like :func:`run`, and note the time after every row.

    Args:
        table: int64 array ``(n, 2)`` of addresses.
        first: the first row.
        end: one behind the last row.
        stamps: int64 array, where ``end - first + 3`` numbers are written: the time at the begin in
            nanoseconds, the processor's counter then and after every row, the time at the end.
        at: where in ``stamps``.

    Returns:
        ``end``, or the number of the row whose kernel refused its values.
    """
    before = set_float_mode(np.int32(_DENORMALS_ARE_ZERO))
    stamps[at] = _clock()
    at += 1
    stamps[at] = _ticks()
    row = first
    while row < end and call(table[row, 0], table[row, 1]) == 0:
        row += 1
        at += 1
        stamps[at] = _ticks()
    stamps[at + 1] = _clock()
    set_float_mode(before)
    return row
