"""Code of a loop's rounds that is put off, until an operator looks at numbers.

The operators between pieces of code in a round, such as counters and arrays of tensors, mostly pass
arrays on without reading their elements. So rounds go on in Python while their code waits. It then
runs for many rounds in one call.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.kernels import deferred as kernels
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.machine import Kernel
from dpexec.engine.kernels.tables import run
from dpexec.engine.ops._totals import Total

__all__ = ["DeferredCalls", "Pack", "Refused"]

_WORDS = 1 << 12
_CALLS = 128
_BYTES = 1 << 24
"""The most bytes that waiting code computes: its arrays live as long as it waits."""

_SINGLE = np.dtype(np.float32)

Pack = Callable[..., None]
"""``pack_into`` of a struct of words."""
Refused = Callable[[Env, list[Any]], None]
"""Raises the error for values that code refused; gets the env around the block, and the arrays."""


class DeferredCalls:
    """Calls that wait.

    Args:
        env: the values around the block whose code they are.

    Attributes:
        totals: by name, sums over rounds of values that are read nowhere else; code adds them up.
    """

    def __init__(self, env: Env) -> None:
        self.totals: dict[str, Total] = {}
        self._env = env
        self._make_room(_WORDS)
        self._table = np.empty((_CALLS, 2), np.int64)
        self._table_at = address(self._table)
        self._rows = memoryview(self._table.data).cast("B").cast("q")  # faster than an array
        self._used = self._bytes = 0
        self._calls: list[tuple[Refused | None, Any]] = []  # arrays live as long as they wait

    def _make_room(self, words: int) -> None:
        self._words = np.empty(words, np.int64)
        self._start = self._words.ctypes.data

    def code(
        self, pack: Pack, words: Sequence[int], nbytes: int, refused: Refused, arrays: Any
    ) -> None:
        """Put a piece of code off.

        Args:
            pack: writes the words.
            words: arguments of :func:`dpexec.engine.kernels.deferred.play`.
            nbytes: the bytes that it computes.
            refused: called if it refuses the values.
            arrays: the arrays that it reads, and other objects that must live until it has run.
        """
        self._put(kernels.play, pack, words, refused, arrays)
        self._bytes += nbytes
        if self._bytes > _BYTES:
            self.finish()

    def copy(self, into: Any, array: Any) -> None:
        """``into[...] = array``, later."""
        if _plain(into, array):
            words = into.size, id(into), id(array)
            self._put(kernels.copy, _packing(3), words, None, (into, array))
        else:
            self.finish()
            into[...] = array

    def add(self, into: Any, array: Any) -> None:
        """``into += array``, later."""
        if _plain(into, array):
            self.add_each([(into, array)])
        else:
            self.finish()
            into += array

    def add_each(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """``into += array`` for pairs of float32 arrays without gaps, later."""
        words = [len(pairs)]
        for into, array in pairs:
            words += into.size, id(into), id(array)
        self._put(kernels.add, _packing(len(words)), words, None, pairs)

    def _put(
        self,
        kernel: Kernel,
        pack: Pack,
        words: Sequence[int],
        refused: Refused | None,
        arrays: Any,
    ) -> None:
        if len(self._calls) == _CALLS or self._used + len(words) > len(self._words):
            self.finish()
        if len(words) > len(self._words):
            self._make_room(len(words))
        row, at = 2 * len(self._calls), 8 * self._used
        pack(self._words, at, *words)
        self._rows[row] = kernel.address
        self._rows[row + 1] = self._start + at
        self._calls.append((refused, arrays))
        self._used += len(words)

    def finish(self) -> None:
        """Run all that waits.

        Raises:
            BodyError: an operator refused its values.
        """
        calls = self._calls
        if not calls:
            return
        self._calls = []
        self._used = self._bytes = 0
        row = run(self._table_at, 0, len(calls))
        if row != len(calls):
            refused, (arrays, *_) = calls[row]
            assert refused is not None  # copies and sums never refuse a value
            refused(self._env, arrays)


@functools.cache
def _packing(words: int) -> Pack:
    return struct.Struct(f"{words}q").pack_into


def _plain(into: Any, array: Any) -> bool:
    """Whether kernels can copy or add one array to another."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype == _SINGLE
        and into.dtype == _SINGLE
        and array.size == into.size
        and array.flags.c_contiguous
        and into.flags.c_contiguous
    )
