"""Constructors of estimators with the arguments of their base class, and their documentation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["documented_with", "extends"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


def extends(base: type) -> Callable[[_Function], _Function]:
    """Let the signature of a subclass's ``__init__`` have the base's arguments besides its own.

    scikit-learn reads the parameters of a class from the signature of its own ``__init__``, which
    takes the base's as ``**arguments``.

    Args:
        base: the base class.
    """

    def decorate(function: _Function) -> _Function:
        own = dict(inspect.signature(function).parameters)
        rest = {n: p for n, p in own.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
        every = {**inspect.signature(base.__init__).parameters, **rest}  # type: ignore[misc]

        def construct(*given: Any, **named: Any) -> None:
            function(*given, **named)

        functools.update_wrapper(construct, function)
        # Sphinx reads defaults from the source of what has such a signature: not of ``function``.
        del construct.__wrapped__  # type: ignore[attr-defined]
        construct.__signature__ = inspect.Signature(list(every.values()))  # type: ignore[attr-defined]
        return cast(_Function, construct)

    return decorate


def documented_with(base: type) -> Callable[[_Class], _Class]:
    """Put the arguments of the base class before a subclass's own in its documentation.

    Args:
        base: the base class; its documentation ends with its arguments.
    """

    def decorate(made: _Class) -> _Class:
        if base.__doc__ and made.__doc__:  # python -OO has none
            _, _, arguments = inspect.cleandoc(base.__doc__).partition("Args:\n")
            head, own, rest = inspect.cleandoc(made.__doc__).partition("Args:\n")
            if not own:
                head, attributes, rest = head.partition("Attributes:\n")
                rest = f"\n{attributes}{rest}"
            made.__doc__ = f"{head}Args:\n{arguments}\n{rest}"
        return made

    return decorate
