"""What is built as a whole or not at all: a call that fails leaves programs as they were.

Layers make variables first and check shapes when they add the operator, and many add several. So
whatever changes a program says here how that is taken back; a function under :func:`whole` that
raises has its changes undone, also inside another one.
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

__all__ = ["build_whole", "note", "note_attributes", "whole", "whole_block"]

P = ParamSpec("P")
R = TypeVar("R")


class _Journal(threading.local):
    """How to undo, in the order of the changes, while a call is under way in this thread."""

    entries: list[tuple[Callable[..., Any], tuple[Any, ...]]] | None = None


_journal = _Journal()


def note(undo: Callable[..., Any], *args: Any) -> None:
    """Say how to undo what is about to change.

    Args:
        undo: called with ``args`` if the call fails that makes the change.
        args: its arguments.
    """
    if _journal.entries is not None:
        _journal.entries.append((undo, args))


def note_attributes(target: Any, *names: str) -> None:
    """Say that these attributes of an object are about to change.

    Args:
        target: the object.
        names: of the attributes.
    """
    if _journal.entries is not None:
        _journal.entries += [(setattr, (target, name, getattr(target, name))) for name in names]


def whole(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that builds: if it raises, what it built is taken back.

    Names that it took from ``unique_name`` stay taken, as in fluid.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _journal.entries is not None:
            return _undone_if_raised(_journal.entries, function, *args, **kwargs)
        _journal.entries = []
        try:
            return _undone_if_raised(_journal.entries, function, *args, **kwargs)
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
    """Decorates the generator of a ``with`` block whose layers become an operator at its end.

    If the block raises, what was built since it began is taken back, and the object whose method
    this is forgets the block, so that another one may follow. Paddle leaves the operators, and
    after a loop the program stays inside the block.
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
    """What an attribute holds now: lists and dicts are copied, however deep."""
    if isinstance(value, list):
        return [_kept(item) for item in value]
    if isinstance(value, dict):
        return {key: _kept(item) for key, item in value.items()}
    return value


def _undo(entries: list[Any], begin: int) -> None:
    """Take back all changes from number ``begin`` on."""
    _journal.entries = None  # what undoes is not undone
    while len(entries) > begin:
        undo, given = entries.pop()
        undo(*given)
    _journal.entries = entries


def _refuse_argument(
    error: AttributeError, function: Callable[..., Any], args: Any, kwargs: Any
) -> None:
    """Raise a TypeError if the error is that an argument, or an item of one, is no variable."""
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    for name, value in given.items():
        items = value if isinstance(value, (list, tuple)) else ()
        if error.obj is value or any(error.obj is item for item in items):
            shown = " ".join(repr(value).split())
            raise TypeError(
                f"'{name}' in {function.__name__} has no {error.name}, as a variable has: it is "
                f"{type(error.obj).__name__} ({shown:.80})"
            ) from error


def build_whole(namespace: MutableMapping[str, Any], names: Iterable[str], module: str) -> None:
    """Put what a package makes public under :func:`whole`: functions, and methods of classes.

    The modules of the package get the same functions, whichever of them a program asks.

    Args:
        namespace: of the package.
        names: of what it makes public.
        module: name of the package: pickle finds the functions there.
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
            setattr(kind, name, whole(method))


def _builds(value: Any) -> bool:
    """Whether it is a function that builds when it is called, unlike one of a ``with`` block."""
    return inspect.isfunction(value) and not inspect.isgeneratorfunction(inspect.unwrap(value))
