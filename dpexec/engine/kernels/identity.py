"""The cache key of a function in machine code: everything that its behaviour depends on.

Two functions with the same identity compile to the same code, in whatever file or process they are,
so code is kept by it (:mod:`dpexec.engine.kernels.code_store`).
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dpexec.engine.core.version import metadata

__all__ = ["Untold", "identity"]

_PASSES = 3
"""Another number for every other choice of passes: code that others made may have other bits."""
_KNOWN_MODULES = {"llvmlite", "math", "numba", "numpy", "operator", "platform", "time"}
"""Their versions are part of what code is known by, or they do not change."""
_LOAD_GLOBAL, _EXTENDED = dis.opmap["LOAD_GLOBAL"], dis.EXTENDED_ARG


class Untold(Exception):
    """A function uses something of which nobody can tell whether it is the same later."""


def identity(function: Any, *more: Any) -> str:
    """A name for the behaviour of a function, 40 hexadecimal digits.

    Args:
        function: the function.
        more: what else decides the machine code.

    Raises:
        Untold: it uses objects that cannot be compared between processes.
    """
    facts = (_of_function(function), *map(_fact, more), _versions())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:40]


@functools.cache
def _versions() -> tuple[Any, ...]:
    packages = ("numba", "llvmlite", "numpy")
    found = tuple(metadata().version(package) for package in packages)
    return (_PASSES, sys.implementation.cache_tag, *found)


_known: WeakKeyDictionary[FunctionType, str] = WeakKeyDictionary()
_under_way: list[FunctionType] = []


def _of_function(function: FunctionType) -> str:
    found = _known.get(function)
    if found is None:
        if function in _under_way:
            return "itself"
        _under_way.append(function)
        try:
            found = _known[function] = _hashed(function)
        finally:
            _under_way.pop()
    return found


def _hashed(function: FunctionType) -> str:
    codes: list[CodeType] = [function.__code__]
    parts: list[Any] = [_fact(function.__defaults__)]
    for code in codes:
        codes += [const for const in code.co_consts if isinstance(const, CodeType)]
        consts = [_fact(const) for const in _constants(code) if not isinstance(const, CodeType)]
        parts.append((code.co_code, code.co_names, code.co_varnames, code.co_freevars, consts))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    parts += [(name, _fact(cell.cell_contents)) for name, cell in cells]
    for name in sorted({name for code in codes for name in _globals(code)}):
        if name in function.__globals__:
            parts.append((name, _fact(function.__globals__[name])))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _constants(code: CodeType) -> tuple[Any, ...]:
    """The constants of a code, without its documentation."""
    has_docstring = code.co_flags & 0x4000000 if sys.version_info >= (3, 13) else True
    documented = has_docstring and code.co_consts and isinstance(code.co_consts[0], str)
    return (None, *code.co_consts[1:]) if documented else code.co_consts


def _globals(code: CodeType) -> Iterator[str]:
    """The names of what a code takes from its module."""
    high, instructions = 0, code.co_code
    for at in range(0, len(instructions), 2):
        operation, low = instructions[at], instructions[at + 1]
        if operation == _LOAD_GLOBAL:
            yield code.co_names[(high | low) >> 1]
        high = (high | low) << 8 if operation == _EXTENDED else 0


def _fact(value: Any) -> Any:
    """What tells a value from others, as text that is the same in every process."""
    found = getattr(type(value), "machine_identity", None)
    if found is not None:
        options, function = found(value)
        return type(value).__name__, options, _of_function(function)
    if isinstance(value, FunctionType):
        return _of_function(value)
    inner = getattr(value, "py_func", None) or getattr(value, "_defn", None)
    if isinstance(inner, FunctionType):  # what numba's own decorators made
        options = sorted(map(repr, getattr(value, "targetoptions", {}).items()))
        return type(value).__name__, options, _of_function(inner)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return type(value).__name__, repr(value)
    if isinstance(value, tuple):
        return tuple(map(_fact, value))
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.tobytes()
    return _name(value)


def _name(value: Any) -> str:
    """The name of what belongs to Python or to a package whose version is known."""
    if isinstance(value, ModuleType):
        module = value.__name__
    else:
        named = isinstance(value, type | BuiltinFunctionType)
        module = str(value.__module__ if named else type(value).__module__)
    if module.partition(".")[0] not in _KNOWN_MODULES | {"builtins"}:
        raise Untold(f"{value!r}")
    return f"{module} {value}" if not isinstance(value, ModuleType) else module
