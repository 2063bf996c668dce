"""``fluid.annotations``: the decorator for deprecated functions."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["deprecated"]


def deprecated(since: str, instead: str, extra_message: str = "") -> Callable[..., Any]:
    """Decorator: each call of the function prints to stderr which function to use instead.

    Args:
        since: the version in which it was deprecated.
        instead: the function to use instead.
        extra_message: text to append to the warning.

    Returns:
        A decorator.

    Example:
        >>> from dpexec.annotations import deprecated
        >>> @deprecated("1.8", instead="layers.relu")
        ... def rectify(x):
        ...     "The positive part."
        ...     return max(x, 0)
        >>> print(rectify.__doc__.splitlines()[0])
        The positive part.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        text = f"API {function.__name__} is deprecated since {since}. Please use {instead} instead."
        text = f"{text}\n{extra_message}" if extra_message else text

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            print(text, file=sys.stderr)
            return function(*args, **kwargs)

        call.__doc__ = f"{function.__doc__ or ''}\n    {text}"
        return call

    return decorate
