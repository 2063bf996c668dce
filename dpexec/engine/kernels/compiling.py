"""Compiles functions to machine code, and caches the code on disk.

numba's initialisation takes 0.4 seconds and 27 MB, and twice as much if SciPy is installed. Loading
cached code does not need it, so it is put off until a function has to be compiled.

Ctrl-C is deferred meanwhile. LLVM and Python pass ownership of objects to each other and record it
only after the call: an interrupt in between makes both free the same object, which crashes the
process. An interrupt while LLVM asks Python for code from disk is lost, together with the code.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numba
import numpy as np
from numba.core import ir, sigutils
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.runtime import rtsys
from numba.core.untyped_passes import TranslateByteCode

from dpexec.engine.core.interrupts import Uninterrupted

__all__ = ["KEEP", "apart", "callback", "called", "entry", "inline"]


class _Library(JITCodeLibrary):
    """Machine code without reference counting, so numba's passes that prune it are left out."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:  # most functions are only declared
                manager, builder = self._codegen._function_pass_manager()
                manager.run(function, builder)

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


class _Compiler(Compiler):
    def define_pipelines(self) -> Any:
        state = self.state
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


class _Apart(_Compiler):
    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


# For functions that only machine code calls: numba would add two wrappers for other callers.
called = functools.partial(
    numba.njit,
    error_model="numpy",
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    pipeline_class=_Compiler,
)

# LLVM inlines these functions. Numba could do it (inline="always"), but before type inference, so
# that every caller's types are inferred with the whole body: compiling takes twice as long.
inline = called(forceinline=True)

# Pointers among the arguments point to different arrays.
apart = called(pipeline_class=_Apart)


_Loads = Sequence[tuple[str, Any, int]]
"""For every argument, its name, the intrinsic that reads it, and the number that this takes."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _Unpack(FunctionPass):
    """Replaces the arguments of a function by code that reads them from an array of words."""

    _name = "unpack"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        found = state.func_ir
        first = found.blocks[min(found.blocks)]
        scope, loc = first.scope, first.loc
        given = ir.Arg("$arguments", 0, loc)
        address = scope.define(given.name, loc)
        body = [ir.Assign(given, address, loc)]
        for statement in first.body:
            if isinstance(getattr(statement, "value", None), ir.Arg):
                name, load, where = state.pipeline.loads[statement.value.index]
                called, at = (scope.redefine("$load", loc) for _ in range(2))
                body.append(ir.Assign(ir.Global(name, load, loc), called, loc))
                body.append(ir.Assign(ir.Const(where, loc), at, loc))
                statement.value = ir.Expr.call(called, [address, at], (), loc)
            body.append(statement)
        first.body = body
        found.arg_names, found.arg_count = (given.name,), 1
        found._definitions = build_definitions(found.blocks)
        return True


class _Unpacking(_Compiler):
    def __init__(self, loads: _Loads, *more: Any) -> None:
        super().__init__(*more)
        self.loads = loads

    def define_pipelines(self) -> Any:
        (passes,) = super().define_pipelines()
        passes.add_pass_after(_Unpack, TranslateByteCode)
        passes.finalize()
        return [passes]


def _can_keep() -> bool:
    """Whether machine code can be kept on disk: beside the sources, or in the user's cache."""
    try:
        numba.njit(cache=True)(_can_keep)
    except RuntimeError:
        return False
    return True


KEEP = _can_keep()
"""Whether machine code is kept on disk; if not, every process compiles the kernels that it uses."""


@functools.cache
def _stamp(function: Any) -> int:
    """A key of a function's behaviour: its bytecode, constants, and the functions that it calls."""
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


_PASSES = 2
"""To be increased when the compiler's passes change, as the results may then have other bits."""
_PATIENCE = 10.0  # seconds to wait for another process that compiles: it may have been stopped


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """A block that only one process at a time may be in, for each place."""
    deadline = time.monotonic() + _PATIENCE
    with place.open("w") as file:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)
            else:
                break
        try:
            yield
        finally:
            place.unlink(missing_ok=True)


class _Kept(FunctionCache):
    """The cached machine code of a function: numba's cache with three differences.

    Loading does less work. Code is out of date as soon as a called function changes, in whatever
    file. If several processes, such as workers, need the same code, one compiles and the others
    load it.

    Args:
        function: the function.
        turn: closed when the function is compiled.
        loads: how its arguments are read.
    """

    def __init__(
        self, function: Callable[..., Any], turn: contextlib.ExitStack, loads: _Loads = ()
    ) -> None:
        super().__init__(function)
        self._turn = turn
        file: Any = self._cache_file
        read = [(name, _stamp(load._defn), where) for name, load, where in loads]
        file._source_stamp = (file._source_stamp, _stamp(function), _PASSES, *read)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # functions that all machine code may call
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            if found is None:
                self._impl.locator.ensure_cache_path()
                place = Path(self._cache_path, f"{self._impl.filename_base}.turn")
                self._turn.enter_context(_alone(place))
                found = self._load_overload(sig, target_context)
            return found


def callback(
    function: Callable[..., Any], signature: str, loads: _Loads | None = None, keep: bool = KEEP
) -> Any:
    """Compile a function for callers in machine code and in C.

    Args:
        function: the function.
        signature: its types, as numba writes them.
        loads: how its arguments are read from the address that is then the only argument of the
            compiled function; None: it is compiled as it is.
        keep: whether it is loaded from disk, and stored there.

    Returns:
        An object with its ``address``, which must live as long as it is called.
    """
    types, options = sigutils.normalize_signature(signature), {"error_model": "numpy"}
    pipeline: Any = _Compiler if loads is None else functools.partial(_Unpacking, loads)
    made: Any = CFunc(function, types, {}, options, pipeline_class=pipeline)
    _compile(made, function, loads or (), keep=keep)
    return made


def _compile(
    made: Any, function: Any, loads: _Loads = (), *signature: str, keep: bool = KEEP
) -> None:
    """Compile a function that numba has wrapped, or load its code from disk."""
    with Uninterrupted(), contextlib.ExitStack() as turn:
        if keep and Path(function.__code__.co_filename).is_file():  # a notebook's cell is no file
            made._cache = _Kept(function, turn, loads)
        made.compile(*signature)


def entry(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile the decorated function for callers in Python, too; it runs without the GIL.

    Args:
        signature: its types, as numba writes them.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        made: Any = numba.njit(nogil=True)(function)
        _compile(made, function, (), signature)
        made.disable_compile()
        return made

    return compiled
