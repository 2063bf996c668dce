"""Files of declarations, each imported when one of its types is first asked for."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.core.memory import no_cycles_sought

__all__ = ["Library", "declaring_module"]

T = TypeVar("T")


class Library:
    """Imports the modules that declare operators.

    Which types are known depends on what was asked for before. So whoever lists types calls
    :meth:`load_all` first, and a type that the index lacks is looked for in all modules.

    Attributes:
        loads: whether a thread imports now: what it declares is incomplete until it has ended.
    """

    def __init__(self) -> None:
        self.loads = False
        self._lock = threading.RLock()
        self._module_of: Callable[[str], str | None] = _nowhere
        self._modules: Callable[[], Iterable[str]] = tuple
        self._complete = False

    def supply(
        self, module_of: Callable[[str], str | None], modules: Callable[[], Iterable[str]]
    ) -> None:
        """Set where declarations are.

        Args:
            module_of: the name of the module that declares a type, if an index has it.
            modules: the names of all modules.
        """
        self._module_of, self._modules, self._complete = module_of, modules, False

    def load(self, type: str, known: Collection[str]) -> None:
        """Import the module that declares a type; all modules if the index lacks it.

        Args:
            type: the type.
            known: the types that have been declared; the imported modules add theirs.
        """
        with self.alone():  # another thread may be half-way through the module
            if type in known or self._complete:
                return
            name = self._module_of(type)
            if name is not None:
                _import(name)
            if type not in known:
                self.load_all()

    def other(self, type: str, module: str, known: Mapping[str, T]) -> T | None:
        """The declaration that a type has before a module declares it; None: it has none.

        Args:
            type: the type.
            module: name of the module that is about to declare it.
            known: what has been declared; a module that declares the type is imported first.
        """
        name = self._module_of(type)
        if type not in known and name is not None and name != module:
            with self.alone():
                _import(name)
        return known.get(type)

    def load_all(self) -> None:
        """Import all modules."""
        if self._complete:
            return
        with self.alone(), no_cycles_sought():  # of 300 modules all stays
            for name in self._modules():
                _import(name)
            self._complete = True

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Import modules: no other thread asks for declarations in the meantime.

        Nor does Ctrl-C break the imports off: modules would have declared in part.
        """
        with self._lock, Uninterrupted():
            outermost, self.loads = not self.loads, True
            try:
                yield
            finally:
                self.loads = not outermost


def _nowhere(type: str) -> None:
    """No module declares a type."""


def _import(name: str) -> None:
    """Import a module, unless it is gone since the index was made."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise


def declaring_module() -> str:
    """The name of the module that is being executed and, through others, calls this function."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    name: str = frame.f_globals.get("__name__", "")
    return name
