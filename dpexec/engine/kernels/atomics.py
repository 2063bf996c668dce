"""Atomic words of memory, shared by threads or processes.

Writing a word releases, and reading it acquires: a reader of a word sees everything that was
written before the word.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from dpexec.engine.kernels.compiling import Lazily, called, entry
from dpexec.engine.kernels.machine import count, intrinsic
from dpexec.engine.kernels.tables import ticks

ir, types = Lazily("llvmlite.ir"), Lazily("numba.types")
cgutils = Lazily("numba.core.cgutils")

__all__ = [
    "give_way",
    "increase",
    "load",
    "pause",
    "reached",
    "read",
    "store",
    "take",
    "wait_politely",
    "write",
]

_POSIX = os.name == "posix"
_POLITE = 16
"""Turns of spinning, some 0.4 us, after which who waits for other processes lets others have the
core.

Who is waited for may be on the same core, or may have been about to wake a third one there."""
_TICKS = 64
"""Ticks of a turn."""
_MOST = 500
"""The most turns that count while others had the core."""


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def load(typing_context: Any, address: Any) -> Any:
    """Read a word that other threads or processes write."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "seq_cst", 8, typ=ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def store(typing_context: Any, address: Any, value: Any) -> Any:
    """Write a word that other threads or processes read."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def increase(typing_context: Any, address: Any, value: Any) -> Any:
    """Add to a word that other threads change, too."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def take(typing_context: Any, address: Any) -> Any:
    """Set a word to 1 if it is 0; returns its value before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        place = _pointer(builder, args[0])
        made = builder.cmpxchg(place, word(0), word(1), "seq_cst", "seq_cst")
        return builder.extract_value(made, 0)

    return types.int64(types.int64), generate


@intrinsic
def pause(typing_context: Any) -> Any:
    """Tell the processor that this thread spins (x86 only)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if platform.machine().lower() in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def give_way(typing_context: Any) -> Any:
    """Let other threads that are ready have this core; returns at once if there are none."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _POSIX:
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


@called()
def wait_politely(turn: int) -> int:
    """Spin for a turn while other processes are waited for; sometimes others may have the core.

    Args:
        turn: the number of the turn.

    Returns:
        The number of the next turn: about as many have passed as would fit into the time, so that
        a wait is looked at soon enough however long others had the core.
    """
    if turn % _POLITE != _POLITE - 1:
        pause()
        return turn + 1
    before = ticks()
    give_way()
    return turn + 1 + max(0, min((ticks() - before) // _TICKS, _MOST))


@entry
def read(address: int) -> int:
    """Read a word that other threads or processes write, from Python."""
    return load(address)


@entry
def write(address: int, value: int) -> int:
    """Write a word that other threads or processes read, from Python; returns the value."""
    store(address, value)
    return value


@entry
def reached(words: int, number: int, turn: int, patience: int) -> int:
    """Wait until words of other processes have reached a number.

    All words are read once more after the last one has reached it, so that none was taken back
    during the wait for others.

    Args:
        words: address of the addresses of the words.
        number: how many words there are.
        turn: the number that each word must reach.
        patience: the most turns of spinning.

    Returns:
        0 if the words did not reach it, 1 if all had reached it before; otherwise 2 more than the
        position of the word that came last.
    """
    there = idle = 0
    last = -1
    while there < 2 * number and idle < patience:
        if load(count(words, there % number)) >= turn:
            there += 1
        else:
            last = there % number
            there = 0
            idle = wait_politely(idle)
    return 2 + last if there == 2 * number else 0
