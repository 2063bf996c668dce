"""Functions become machine code, which is kept on disk and loaded from there.

What numba does before it compiles (it imports all that it can compile) takes 0.4 seconds and 27 MB,
and as much again where SciPy is installed. Loading needs nothing of it, so it is left out as long
as everything is on disk; whatever has to be compiled brings it about.

Nothing of it may be broken off. LLVM and Python hand objects over to each other, and notice so
after the call: an interrupt in between lets both free the same object, and the process dies at
once or later. An interrupt while LLVM asks Python for code from disk is lost, and so is the code.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import numba
import numpy as np
from numba.core import sigutils
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys

from dpexec.engine.core.interrupts import Uninterrupted

__all__ = ["KEEP", "callback", "entry"]


def _can_keep() -> bool:
    """Whether machine code can be kept on disk: beside the sources, or in the user's cache."""
    try:
        numba.njit(cache=True)(_can_keep)
    except RuntimeError:
        return False
    return True


KEEP = _can_keep()
"""Whether machine code is kept on disk; else every process compiles what it uses."""


@functools.cache
def _stamp(function: Any) -> int:
    """Says what a function does: its bytecode, the numbers that it knows, and all that it calls."""
    codes: list[CodeType] = [function.__code__]
    parts: list[tuple[Any, ...]] = []
    for code in codes:
        codes += [const for const in code.co_consts if isinstance(const, CodeType)]
        consts = [const for const in code.co_consts if not isinstance(const, CodeType)]
        parts.append((code.co_code, code.co_names, consts))
    for name in sorted({name for code in codes for name in code.co_names}):
        value = function.__globals__.get(name)
        helper = getattr(value, "py_func", getattr(value, "_defn", value))
        if isinstance(helper, FunctionType) and helper is not function:
            parts.append((name, _stamp(helper)))
        elif isinstance(value, int | float | np.generic):
            parts.append((name, value))
    return zlib.crc32(repr(parts).encode())


class _Kept(FunctionCache):
    """The machine code of a function on disk; numba's own, but for two things.

    It does less before it loads; and what was compiled is out of date as soon as anything changes
    that the function calls, in whatever file that is.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        file: Any = self._cache_file
        file._source_stamp = (file._source_stamp, _stamp(function))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # functions that all machine code may call
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def callback(function: Callable[..., Any], signature: str) -> Any:
    """Compile a function for callers in machine code and in C.

    Args:
        function: the function.
        signature: its types, as numba writes them.

    Returns:
        An object with its ``address``, which must live as long as it is called.
    """
    made: Any = CFunc(
        function, sigutils.normalize_signature(signature), {}, {"error_model": "numpy"}
    )
    if KEEP:
        made._cache = _Kept(function)
    with Uninterrupted():
        made.compile()
    return made


def entry(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile the decorated function for callers in Python, too; it runs without the GIL.

    Args:
        signature: its types, as numba writes them.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        made: Any = numba.njit(nogil=True)(function)
        if KEEP:
            made._cache = _Kept(function)
        with Uninterrupted():
            made.compile(signature)
        made.disable_compile()
        return made

    return compiled
