"""Atomic building: a layer call that fails leaves its programs unchanged.

Layers make variables first, check shapes when they add the operator, and often add several
operators. So every change of a program records here how to undo it. If a function decorated with
:func:`whole` raises, its changes are undone, also when it is called inside another such function.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, TypeVar

from dpexec.engine.arguments.explained import UNNAMED, check_types, explain, refuse_misfit

__all__ = ["build_whole", "note", "note_attributes", "whole", "whole_block"]

P = ParamSpec("P")
R = TypeVar("R")


class _Journal(threading.local):
    """The undo actions of the call under way in this thread, in the order of the changes."""

    entries: list[tuple[Callable[..., Any], tuple[Any, ...]]] | None = None


_journal = _Journal()


def note(undo: Callable[..., Any], *args: Any) -> None:
    """Record how to undo the next change.

    Args:
        undo: called with ``args`` if the building call fails.
        args: arguments of ``undo``.
    """
    if _journal.entries is not None:
        _journal.entries.append((undo, args))


def note_attributes(target: Any, *names: str) -> None:
    """Record the current values of attributes that are about to change.

    Args:
        target: the object.
        names: names of its attributes.
    """
    if _journal.entries is not None:
        _journal.entries += [(setattr, (target, name, getattr(target, name))) for name in names]


def whole(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that builds operators: if it raises, its changes are undone.

    Names that it took from ``unique_name`` stay taken, as in fluid.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _journal.entries is not None:
            return _undone_if_raised(_journal.entries, function, *args, **kwargs)
        _journal.entries = []
        try:
            return _undone_if_raised(_journal.entries, function, *args, **kwargs)
        except UNNAMED as error:
            explain(error, function, args, kwargs)
            raise
        finally:
            _journal.entries = None

    return call


def _undone_if_raised(
    entries: list[Any], function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    begin = len(entries)
    try:
        return function(*args, **kwargs)
    except BaseException as error:
        _undo(entries, begin)
        if isinstance(error, AttributeError) and error.name is not None:
            _refuse_argument(error, function, args, kwargs)
        raise


def whole_block(
    method: Callable[Concatenate[Any, P], Iterator[R]],
) -> Callable[Concatenate[Any, P], AbstractContextManager[R]]:
    """Decorate the generator of a ``with`` block whose layers become an operator at its end.

    If the block raises, everything built since it began is undone, and the method's object forgets
    the block, so that another one may follow. Paddle leaves the operators in place, and after a
    failed loop the program stays inside the loop's block.
    """
    manager = contextlib.contextmanager(method)

    @contextlib.contextmanager
    @functools.wraps(method)
    def block(self: Any, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        known = {name: _kept(value) for name, value in vars(self).items()}
        outermost = _journal.entries is None
        entries: list[Any] = [] if _journal.entries is None else _journal.entries
        _journal.entries = entries
        begin = len(entries)
        try:
            with manager(self, *args, **kwargs) as made:
                yield made
        except BaseException:
            _undo(entries, begin)
            vars(self).update(known)
            raise
        finally:
            if outermost:
                _journal.entries = None

    return block


def _kept(value: Any) -> Any:
    """A copy of an attribute's value: nested lists and dicts are copied deeply."""
    if isinstance(value, list):
        return [_kept(item) for item in value]
    if isinstance(value, dict):
        return {key: _kept(item) for key, item in value.items()}
    return value


def _undo(entries: list[Any], begin: int) -> None:
    """Take back all changes from number ``begin`` on."""
    _journal.entries = None  # undo actions are not recorded themselves
    while len(entries) > begin:
        undo, given = entries.pop()
        undo(*given)
    _journal.entries = entries


def _refuse_argument(
    error: AttributeError, function: Callable[..., Any], args: Any, kwargs: Any
) -> None:
    """Raise TypeError if an argument, or an item of one, should be a variable but is not."""
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    refuse_misfit(function, given, error)
    for name, value in given.items():
        items = value if isinstance(value, (list, tuple)) else ()
        if error.obj is value or any(error.obj is item for item in items):
            shown = " ".join(repr(value).split())
            raise TypeError(
                f"'{name}' in {function.__name__} has no {error.name}, as a variable has: it is "
                f"{type(error.obj).__name__} ({shown:.80})"
            ) from error


def build_whole(namespace: MutableMapping[str, Any], names: Iterable[str], module: str) -> None:
    """Apply :func:`whole` to a package's public functions and methods.

    The modules of the package get the same decorated functions, so every import path works.

    Args:
        namespace: the package's ``globals()``.
        names: its public names.
        module: the package's name, under which pickle finds the functions.
    """
    for kind in {value for value in map(namespace.get, names) if inspect.isclass(value)}:
        _whole_methods(kind)
    made = {namespace[name]: whole(namespace[name]) for name in names if _builds(namespace[name])}
    for function in made.values():
        function.__module__ = module
    within = [vars(found) for key, found in sys.modules.items() if key.startswith(f"{module}.")]
    for bound in (namespace, *within):
        bound.update(
            (n, made[v]) for n, v in [*bound.items()] if inspect.isfunction(v) and v in made
        )


def _whole_methods(kind: type) -> None:
    for name, method in list(vars(kind).items()):
        if _builds(method) and name not in ("__enter__", "__exit__"):  # these outlive a call
            setattr(kind, name, whole(_checked(method) if name == "__init__" else method))


def _checked(constructor: Callable[..., None]) -> Callable[..., None]:
    """Decorate a constructor: it refuses wrong types that it would only store, to fail later."""

    @functools.wraps(constructor)
    def construct(*args: Any, **kwargs: Any) -> None:
        constructor(*args, **kwargs)
        check_types(constructor, args, kwargs)

    return construct


def _builds(value: Any) -> bool:
    """Whether it is a function that builds when called, and not one for a ``with`` block."""
    return inspect.isfunction(value) and not inspect.isgeneratorfunction(inspect.unwrap(value))
