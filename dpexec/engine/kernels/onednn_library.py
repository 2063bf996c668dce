"""The library oneDNN: whether it is there, its functions, and its objects."""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any

from dpexec.engine.core.version import metadata
from dpexec.engine.kernels.openmp import impatient

__all__ = [
    "Handle",
    "available",
    "certain",
    "create",
    "engine",
    "entry",
    "entry_address",
    "passed",
    "stream",
    "version",
]

_PACKAGE, _FILE = "onednn-cpu-gomp", "libdnnl.so.3"

# Numbers of the C interface, version 3.
_CPU, _IN_ORDER, _MOST_DIMENSIONS = 1, 1, 12


@functools.cache
def _library() -> ctypes.CDLL | None:
    installed = metadata()
    try:
        files = installed.files(_PACKAGE) or []
        found = next(str(file.locate()) for file in files if file.name == _FILE)
        with impatient():
            return ctypes.CDLL(found)
    except (installed.PackageNotFoundError, StopIteration, OSError):
        return None


def available() -> bool:
    """Whether the library is installed (``pip install dpexec[fast]`` on Linux, x86-64)."""
    return _library() is not None


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


def version() -> str:
    """The library's version, such as ``3.2.0``."""
    call = entry("dnnl_version")
    call.restype = ctypes.POINTER(_Version)
    found = call().contents
    return f"{found.major}.{found.minor}.{found.patch}"


def entry(name: str) -> Any:
    """The library's function of a name."""
    library = _library()
    if library is None:
        raise AssertionError("oneDNN is not installed")
    return getattr(library, name)


@functools.cache
def entry_address(name: str) -> int:
    """The address of the library's function of a name."""
    return ctypes.cast(entry(name), ctypes.c_void_p).value or 0


class Handle:
    """An object of the library, destroyed with this one. ``int()`` is its address.

    Args:
        kind: kind of the object, as in the names of the library's functions.
        address: address of the object.
    """

    def __init__(self, kind: str, address: int) -> None:
        self.address = address
        destroy = entry(f"dnnl_{kind}_destroy")
        weakref.finalize(self, destroy, ctypes.c_void_p(address)).atexit = False

    def __int__(self) -> int:
        return self.address


def create(function: str, *arguments: Any, kind: str = "") -> Handle | None:
    """Call a function that creates an object; None if the library cannot create it."""
    made = ctypes.c_void_p()
    status = entry(function)(ctypes.byref(made), *map(passed, arguments))
    if status or not made.value:
        return None
    return Handle(kind or function.removeprefix("dnnl_").removesuffix("_create"), made.value)


def passed(argument: Any) -> Any:
    """An argument as C functions take it: addresses of objects, arrays for dimensions."""
    if argument is None or isinstance(argument, Handle):
        return ctypes.c_void_p(argument.address if argument else None)
    if isinstance(argument, tuple):
        return (ctypes.c_int64 * _MOST_DIMENSIONS)(*argument)
    return argument


@functools.cache
def engine() -> Handle:
    """The processor."""
    return certain(create("dnnl_engine_create", _CPU, ctypes.c_size_t(0)))


@functools.cache
def stream() -> Handle:
    """The stream in which primitives are executed, one after another."""
    return certain(create("dnnl_stream_create", engine(), _IN_ORDER))


def certain(made: Handle | None) -> Handle:
    """An object that the library can surely create.

    Raises:
        RuntimeError: it could not.
    """
    if made is None:
        raise RuntimeError("oneDNN does not work on this machine")
    return made
