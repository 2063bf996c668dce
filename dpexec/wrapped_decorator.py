"""``fluid.wrapped_decorator``: decorators that keep functions' names and documentation."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

__all__ = ["signature_safe_contextmanager", "wrap_decorator"]

signature_safe_contextmanager = contextlib.contextmanager


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
