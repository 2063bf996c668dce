"""``fluid.wrapped_decorator``: decorators that keep functions' names and documentation."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["signature_safe_contextmanager", "wrap_decorator"]


def signature_safe_contextmanager(
    func: Callable[..., Iterator[Any]],
) -> Callable[..., contextlib.AbstractContextManager[Any]]:
    """Make a context manager of a generator that yields once, as ``contextlib.contextmanager``.

    Args:
        func: the generator; what it yields is bound by ``with ... as``.

    Returns:
        A function with the name, documentation and signature of ``func``.

    Example:
        >>> from dpexec.wrapped_decorator import signature_safe_contextmanager
        >>> @signature_safe_contextmanager
        ... def said(what):
        ...     print("begin", what)
        ...     yield
        ...     print("end", what)
        >>> with said("work"):
        ...     print("working")
        begin work
        working
        end work
    """
    return contextlib.contextmanager(func)


def wrap_decorator(decorator_func: Callable[..., Any]) -> Callable[..., Any]:
    """Make a decorator keep names and documentation; it is applied anew at every call.

    Args:
        decorator_func: the decorator to apply.

    Returns:
        A decorator.

    Example:
        >>> from dpexec.wrapped_decorator import wrap_decorator
        >>> @wrap_decorator(lambda function: lambda x: 2 * function(x))
        ... def successor(x):
        ...     "The next number."
        ...     return x + 1
        >>> successor(1), successor.__doc__
        (4, 'The next number.')
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return decorator_func(function)(*args, **kwargs)

        return call

    return decorate
