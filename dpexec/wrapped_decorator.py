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
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return decorator_func(function)(*args, **kwargs)

        return call

    return decorate
