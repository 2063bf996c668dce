"""``fluid.annotations``: functions that say that they are out of date."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["deprecated"]


def deprecated(since: str, instead: str, extra_message: str = "") -> Callable[..., Any]:
    """A decorator: calls write to the standard error what to use instead.

    Args:
        since: the version.
        instead: what to use.
        extra_message: is written, too.
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
