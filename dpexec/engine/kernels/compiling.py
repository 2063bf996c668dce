"""Functions in machine code, from the disk or compiled.

numba compiles them, in :mod:`dpexec.engine.kernels.by_numba`, which is imported when something has
to be compiled: that takes a second, and code that is kept needs none of it.

Ctrl-C is deferred meanwhile. LLVM and Python pass ownership of objects to each other and record it
only after the call: an interrupt in between makes both free the same object, which crashes the
process.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.kernels import code_store
from dpexec.engine.kernels.identity import Untold, identity
from dpexec.engine.kernels.loading import family, placed

__all__ = ["Entry", "Helper", "Intrinsic", "Lazily", "Loads"]
__all__ += [
    "address_of",
    "apart",
    "called",
    "entry",
    "inline",
    "inspected",
    "intrinsic",
    "lacks",
    "used",
]

_OLDEST = (0, 62)  # numba: its compilers before had other parts

Loads = Sequence[tuple[str, Any, int]]
"""For every argument a name, an intrinsic that reads it, and what this gets beside an address."""


class Lazily:
    """A module that is imported when one of its names is first needed.

    Args:
        name: of the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)

    def machine_identity(self) -> tuple[Any, Any]:
        """It is one of numba's, whose version is known."""
        return self._name, _nothing


def _nothing() -> None:
    pass


class Helper:
    """A function that only machine code calls, for whatever types these calls have.

    Args:
        function: the function.
        options: of numba, and ``apart``: its pointer arguments point to different arrays.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.function, self.options = function, options
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Call it in Python."""
        return self.function(*arguments)

    def machine_identity(self) -> tuple[Any, Any]:
        """What its code depends on."""
        return sorted(self.options.items()), self.function


class Intrinsic:
    """A function that is written in LLVM's language, for machine code to call.

    Args:
        define: as ``numba.extending.intrinsic`` takes it.
    """

    def __init__(self, define: Callable[..., Any]) -> None:
        self.define = define
        functools.update_wrapper(self, define)

    def __call__(self, *arguments: Any) -> Any:
        """Python cannot call it."""
        raise NotImplementedError(f"{self.define.__name__} is for machine code alone")

    def machine_identity(self) -> tuple[Any, Any]:
        """What its code depends on."""
        return (), self.define


# To Python these are untyped: which types there are, machine code tells.
def called(**options: Any) -> Any:
    """A decorator for functions that only machine code calls.

    Args:
        options: of numba.
    """
    return lambda function: Helper(function, **options)


def inline(function: Callable[..., Any]) -> Any:
    """LLVM puts the decorated function where it is called.

    Numba would do so, too (inline="always"), but before types are found, so that each caller pays
    for the whole body once more: compiling takes twice as long.
    """
    return Helper(function, forceinline=True)


def apart(function: Callable[..., Any]) -> Any:
    """Pointers among the arguments of the decorated function point to different arrays."""
    return Helper(function, apart=True)


def intrinsic(define: Callable[..., Any]) -> Any:
    """A decorator for functions that are written in LLVM's language."""
    return Intrinsic(define)


_lock = threading.RLock()
used: set[str] = set()
"""The names of all code of this process that can be kept."""


def address_of(function: Callable[..., Any], loads: Loads | None = None) -> int:
    """The address of a function's machine code, which stays in memory.

    Args:
        function: takes and returns integers, but for ``loads``.
        loads: how its arguments are read from an address, the only argument of what is compiled;
            else it is compiled as it is.
    """
    with _lock:
        kind = family()
        try:
            name = _name(function, loads)
        except Untold:
            return placed(*_compiled(function, loads))
        used.add(name)
        code = code_store.found(name, kind.name)
        if code is None:
            with code_store.turn(name, kind.name):
                code = code_store.found(name, kind.name)
                if code is None:
                    code, _ = _compiled(function, loads, f"dpexec_{name}")
                    code_store.keep(name, kind.name, code)
        return placed(code, f"dpexec_{name}")


def lacks(function: Callable[..., Any], loads: Loads | None) -> bool:
    """Whether a function would have to be compiled, and its code could be kept."""
    try:
        return not code_store.has(_name(function, loads), family().name)
    except Untold:
        return False


def _name(function: Callable[..., Any], loads: Loads | None) -> str:
    read = None if loads is None else tuple((name, how, at) for name, how, at in loads)
    return identity(function, read)


def _compiled(
    function: Callable[..., Any], loads: Loads | None, symbol: str = "dpexec_unkept"
) -> tuple[bytes, str]:
    with Uninterrupted():
        code: bytes = _by_numba().compiled(function, loads, symbol).emit_native_object()
    return code, symbol


def _by_numba() -> Any:
    """The module that compiles.

    Raises:
        RuntimeError: the numba that is installed is too old for it.
    """
    found = importlib.import_module("numba").__version__
    if tuple(map(int, found.split(".")[:2])) < _OLDEST:
        raise RuntimeError(
            f"kernels need numba {'.'.join(map(str, _OLDEST))} or newer, and numba {found} is "
            "installed: pip install --upgrade 'dpexec[fast]', or do without machine code by "
            "BuildStrategy.native_kernels = False or the environment variable DPEXEC_NATIVE=0"
        )
    return importlib.import_module("dpexec.engine.kernels.by_numba")


def inspected(function: Callable[..., Any], loads: Loads | None) -> tuple[str, str]:
    """The LLVM IR and the assembly of a function, which is compiled for that."""
    with _lock, Uninterrupted():
        made = _by_numba().compiled(function, loads, "kernel")
        return made.get_llvm_str(), made.get_asm_str()


class Entry(Helper):
    """A function of integers that Python calls, too; it runs without the GIL.

    Args:
        function: takes and returns integers.
    """

    def __init__(self, function: FunctionType) -> None:
        super().__init__(function)
        self._arguments = function.__code__.co_argcount

    @functools.cached_property
    def native(self) -> Callable[..., int]:
        """Its machine code as a function of ctypes, for callers to whom a call more counts."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * self._arguments)
        return kind(address_of(self.function))

    def prepare(self) -> None:
        """Have its machine code in memory."""
        _ = self.native

    def __call__(self, *arguments: int) -> int:
        """Call its machine code."""
        return self.native(*arguments)


def entry(function: Callable[..., int]) -> Entry:
    """Compile the decorated function for callers in Python, too; it runs without the GIL.

    Args:
        function: takes and returns integers.
    """
    assert isinstance(function, FunctionType)
    return Entry(function)
