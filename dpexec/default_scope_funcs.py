"""``fluid.default_scope_funcs``: nested scopes; each thread has its own stack of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dpexec.engine.core.scope import Scope, ScopeVariable

__all__ = [
    "enter_local_scope",
    "find_var",
    "get_cur_scope",
    "leave_local_scope",
    "scoped_function",
    "var",
]


class _Stack(threading.local):
    def __init__(self) -> None:
        self.scopes = [Scope()]


_stack = _Stack()


def get_cur_scope() -> Scope:
    """The innermost scope of this thread.

    Returns:
        The scope; at first one of its own for each thread.

    Example:
        >>> from dpexec import default_scope_funcs as scopes
        >>> outer = scopes.get_cur_scope()
        >>> scopes.enter_local_scope()
        >>> scopes.get_cur_scope() is outer
        False
        >>> scopes.leave_local_scope()
        >>> scopes.get_cur_scope() is outer
        True
    """
    return _stack.scopes[-1]


def enter_local_scope() -> None:
    """Make a scope inside the current one, and make it the current one.

    Example:
        >>> from dpexec import default_scope_funcs as scopes
        >>> scopes.enter_local_scope()
        >>> _ = scopes.var("temporary")
        >>> scopes.leave_local_scope()
        >>> print(scopes.find_var("temporary"))
        None
    """
    _stack.scopes.append(get_cur_scope().new_scope())


def leave_local_scope() -> None:
    """Drop the current scope; its parent becomes the current one.

    Raises:
        IndexError: the current scope has no parent.

    Example:
        >>> from dpexec import default_scope_funcs as scopes
        >>> scopes.enter_local_scope()
        >>> scopes.leave_local_scope()
        >>> scopes.leave_local_scope()
        Traceback (most recent call last):
            ...
        IndexError: there is no scope around the current one
    """
    if len(_stack.scopes) == 1:
        raise IndexError("there is no scope around the current one")
    _stack.scopes.pop()
    get_cur_scope().drop_kids()


def var(name: str) -> ScopeVariable:
    """The variable of this name in the current scope, created if missing.

    Args:
        name: name of the variable.

    Returns:
        The variable; its tensor is empty if it was created.

    Raises:
        TypeError: ``name`` is no string.

    Example:
        >>> from dpexec import default_scope_funcs as scopes
        >>> def learn():
        ...     return scopes.var("w") is scopes.var("w"), scopes.find_var("w") is not None
        >>> scopes.scoped_function(lambda: print(learn()))
        (True, True)
    """
    return get_cur_scope().var(name)


def find_var(name: str) -> ScopeVariable | None:
    """The variable of this name in the current scope or its parents; None if there is none.

    Args:
        name: name of the variable.

    Returns:
        The variable, or None.

    Raises:
        TypeError: ``name`` is no string.

    Example:
        >>> from dpexec import default_scope_funcs as scopes
        >>> print(scopes.find_var("never made"))
        None
    """
    return get_cur_scope().find_var(name)


def scoped_function(func: Callable[[], Any]) -> None:
    """Call a function inside a new local scope.

    Args:
        func: called without arguments; variables that it creates are dropped when it returns.

    Raises:
        TypeError: ``func`` cannot be called without arguments.

    Example:
        >>> from dpexec import default_scope_funcs as scopes
        >>> scopes.scoped_function(lambda: print(scopes.var("inner") is scopes.find_var("inner")))
        True
        >>> print(scopes.find_var("inner"))  # gone with its scope
        None
    """
    enter_local_scope()
    try:
        func()
    finally:
        leave_local_scope()
