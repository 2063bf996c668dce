"""The table of fast implementations of operators, by operator type and backend.

The declaration of an operator has a kernel for all arrays (``numpy``). In addition there may be

- ``code``: a lowering, by which the operator becomes part of a piece of machine code
  (:mod:`dpexec.engine.kernels.lowering`).
- ``host``: a kernel for NumPy arrays, called from Python for operators outside pieces: if their
  number of rows is known only at run time, or if they run in a block.
- ``gpu``: a kernel for arrays on GPUs.

Implementations register themselves with a decorator. Of those for processors, a module is imported
when one of its types is first looked up: ``files.txt`` says which file implements a type, and
``python -m dpexec.ops kernels`` writes it anew. Those for GPUs are all imported at once.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from dpexec.engine import kernels
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir import opdef
from dpexec.engine.ir.library import declaring_module
from dpexec.engine.ir.signature import same_place

__all__ = [
    "Backend",
    "backends_of",
    "claim",
    "files",
    "find",
    "implementation",
    "kernel_of",
    "load_all",
]

Backend = Literal["code", "host", "gpu"]
Kernel = Callable[..., Any]
_T = TypeVar("_T", bound=Callable[..., Any])

_BACKENDS: tuple[Backend, ...] = ("code", "host", "gpu")
_HOST = "dpexec.engine.kernels"
_GPU = ("dpexec.engine.kernels.gpu", "dpexec.engine.kernels.gpu.generated")
_WITHOUT_NUMBA = frozenset(["dpexec.engine.kernels.gpu"])
_COMPILER = "by_numba"
"""A module without implementations; it imports numba, which code from the disk does not need."""

_table: dict[tuple[str, Backend, bool], Any] = {}
_brought: set[str] = set()
"""Types whose modules have been imported."""
_declared: dict[str, set[str]] = {}
"""By module of this package, the types that it implements."""


@dataclass(frozen=True)
class _Called:
    """An implementation that is called from Python, see :func:`implementation`."""

    function: Kernel
    where: Callable[[], bool] | None
    per_operator: bool

    def kernel(self, type: str) -> Kernel | None:
        """The kernel of one operator type; None if it cannot be used in this process."""
        if self.where is not None and not self.where():
            return None
        made: Kernel = self.function(type) if self.per_operator else self.function
        return made


def implementation(
    *types: str,
    backend: Literal["host", "gpu"],
    where: Callable[[], bool] | None = None,
    per_operator: bool = False,
) -> Callable[[_T], _T]:
    """Make the decorated function the kernel of some operator types on a backend.

    It is called like the operator's own kernel, ``kernel(xp, *inputs, **attributes)``. It returns
    None for values that it does not support: then the operator's own kernel computes them.

    Args:
        types: the operator types.
        backend: ``"host"``: called from Python on CPUs; ``"gpu"``: called with arrays of CuPy.
        where: tells whether it can be used in this process, for instance whether a library is
            installed; called when an operator is bound.
        per_operator: the function takes the operator type and returns such a kernel for a single
            operator of a program, whose attributes never change.

    Returns:
        A decorator, which returns the function.

    Raises:
        ValueError: a type has another implementation on this backend.

    Example:
        >>> import numpy as np
        >>> from dpexec.extend import implementation, op, same_as
        >>> @op("tripled", inputs="X", infer=same_as("X"))
        ... def tripled(xp, x):
        ...     return x * 3
        >>> @implementation("tripled", backend="host")
        ... def tripled_floats(xp, x):
        ...     return np.multiply(x, 3) if x.dtype == np.float32 else None  # else the one above
    """

    def decorate(function: _T) -> _T:
        claim(types, backend, _Called(function, where, per_operator), function)
        return function

    return decorate


def claim(
    types: tuple[str, ...], backend: Backend, made: Any, function: Kernel, sparse: bool = False
) -> None:
    """Register an implementation.

    Args:
        types: the operator types.
        backend: the backend.
        made: the object that :func:`find` is to return.
        function: the decorated function.
        sparse: whether it is for operators with sparse inputs or outputs.

    Raises:
        ValueError: a type has another implementation on this backend. Registering the same
            function again is allowed, as when a notebook's cell runs again.
    """
    package, _, name = declaring_module().rpartition(".")
    if package == _HOST:
        _declared.setdefault(name, set()).update(types)
    elif backend != "gpu" and kernels.available():
        for type in types:
            _bring(type)  # it may be taken
    for type in types:
        other = _table.get((type, backend, sparse))
        if other is not None and not same_place(other.function, function):
            places = " and ".join(sorted(map(_place, (other.function, function))))
            raise ValueError(f"operator {type} is implemented twice for {backend}: by {places}")
    for type in types:
        _table[type, backend, sparse] = made


def _place(function: Kernel) -> str:
    known = getattr(function, "func", function)  # the function in a functools.partial
    return f"{known.__module__}.{known.__qualname__}"


def find(type: str, backend: Backend, sparse: bool = False) -> Any:
    """The implementation of an operator type on a backend, or None; for ``code`` a lowering.

    Args:
        type: the operator type.
        backend: the backend.
        sparse: whether some of its inputs or outputs are sparse.
    """
    if backend == "gpu":
        for package in _GPU:
            if package in _WITHOUT_NUMBA or kernels.available():
                _load(package)
    elif kernels.available():
        _bring(type)
    return _table.get((type, backend, sparse))


@functools.cache
def _modules_by_type() -> dict[str, list[str]]:
    """By type, the modules that implement it, as ``files.txt`` has them."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("files.txt").read_text("utf-8").splitlines():
        name, _, types = line.partition(":")
        for type in types.split():
            found.setdefault(type, []).append(f"{_HOST}.{name}")
    return found


def _bring(type: str) -> None:
    """Import the modules that implement a type on processors."""
    modules = _modules_by_type().get(type)
    if modules is None or type in _brought:
        return
    kernels.load()
    with opdef.library.alone():  # the modules import files of operators
        for name in modules:
            importlib.import_module(name)
    _brought.add(type)


def load_all() -> None:
    """Import all implementations that can be used here."""
    for package in (_HOST, *_GPU):
        if package in _WITHOUT_NUMBA or kernels.available():
            _load(package)


def files() -> str:
    """The content of ``files.txt``: by module, the types that it implements on processors."""
    load_all()
    return "".join(f"{name}: {' '.join(sorted(_declared[name]))}\n" for name in sorted(_declared))


@functools.cache
def _load(package: str) -> None:
    """Import all modules of a package that were not imported yet."""
    if package not in _WITHOUT_NUMBA:
        kernels.load()
    with opdef.library.alone():  # the modules import files of operators
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if not module.ispkg and module.name != _COMPILER:
                importlib.import_module(f"{package}.{module.name}")


def kernel_of(type: str, general: Kernel, backend: Literal["host", "gpu"]) -> Kernel:
    """The kernel for one operator of a program; it is called like ``general``.

    All its calls must have the same attributes.

    Args:
        type: type of the operator.
        general: its kernel for all arrays.
        backend: the backend that it runs on.
    """
    found = find(type, backend)
    special = None if found is None else found.kernel(type)
    if special is None:
        return general

    def kernel(xp: Any, *values: Any, **attrs: Any) -> Any:
        made = special(xp, *values, **attrs)
        return general(xp, *values, **attrs) if made is None else made

    return kernel


def backends_of(type: str) -> list[str]:
    """The backends on which an operator has implementations in this process, sorted as above."""
    return [b for b in _BACKENDS if find(type, b) or find(type, b, sparse=True)]
