"""Name the wrong argument of a call that failed.

Most functions compute with their arguments at once. If that fails, :func:`explain` compares the
arguments with the annotations.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.core.errors import EnforceNotMet, see

__all__ = ["UNNAMED", "check_types", "explain", "explained", "refuse_misfit"]

P = ParamSpec("P")
R = TypeVar("R")

UNNAMED = (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, RecursionError)
"""What Python and NumPy raise for wrong values; the message does not say which argument it was."""

_PACKAGE = str(Path(__file__).parents[2])


def explain(error: Exception, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Say which argument made a call fail, or add the call to the error.

    Args:
        error: one of :data:`UNNAMED`, which the call raised; it stays as it is if it has a note.
        function: the called function.
        args: its positional arguments.
        kwargs: its named ones.

    Raises:
        TypeError: no check of dpexec raised the error, and an argument does not fit its
            annotation.
        IndexError: an index in dpexec was out of range; the message names the call.
        ZeroDivisionError: likewise.
    """
    if isinstance(error, EnforceNotMet) or hasattr(error, "__notes__"):
        return
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:  # the call itself does not fit, as the error says
        names = (name for name in inspect.signature(function).parameters if name != "self")
        error.add_note(f"The arguments are {', '.join(names)}")
        return
    shown = ", ".join(f"{name}={_short(value)}" for name, value in given.items() if name != "self")
    call = f"{function.__qualname__}({shown})"
    code, raised = _place_of(error)
    if not (raised and code.co_filename.startswith(_PACKAGE)):
        refuse_misfit(function, given, error)
    if not raised and code.co_filename.startswith(_PACKAGE) and type(error) in _MEANINGS:
        raise type(error)(f"{_MEANINGS[type(error)]}: {call}") from error
    error.add_note(f"The call was {call}")


def explained(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: its errors are those of :func:`explain`."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UNNAMED as error:
            explain(error, function, args, kwargs)
            raise

    return call


_MEANINGS: dict[type[Exception], str] = {
    IndexError: "an argument has too few dimensions or items",
    ZeroDivisionError: "an argument leads to a division by 0",
}


def _place_of(error: Exception) -> tuple[types.CodeType, bool]:
    """The code in which an error began, and whether a statement raised it there."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        raise ValueError("this error was never raised")
    code = place.tb_frame.f_code
    return code, code.co_code[place.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def check_types(function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Check the arguments of a call that has returned against the function's annotations.

    Args:
        function: the called function.
        args: its positional arguments.
        kwargs: its named ones.

    Raises:
        TypeError: an argument has another type.
    """
    refuse_misfit(function, _arguments_of(function)[0].bind(*args, **kwargs).arguments)


def refuse_misfit(
    function: Callable[..., Any], given: Mapping[str, Any], error: Exception | None = None
) -> None:
    """Refuse the first argument that has another type than its annotation.

    Args:
        function: the called function.
        given: the arguments by name.
        error: what they caused.

    Raises:
        TypeError: there is such an argument.
    """
    for name, (default, wanted) in _arguments_of(function)[1].items():
        if name not in given or given[name] is default:
            continue
        value = given[name]
        if not _fits(value, wanted):
            made = function.__name__ == "__init__" and "self" in given
            called = type(given["self"]).__name__ if made else function.__qualname__
            problem = (
                f"The type of '{name}' in {called} must be {_spoken(wanted)}, "
                f"but received {type(value).__name__} ({' '.join(repr(value).split()):.80})"
            )
            raise see("a-layer-that-takes-another-type", TypeError(problem)) from error


@functools.lru_cache(limit_of("arguments of functions"))
def _arguments_of(
    function: Callable[..., Any],
) -> tuple[inspect.Signature, dict[str, tuple[Any, Any]]]:
    """A function's signature, and per argument, but for ``*`` and ``**``, its default and type."""
    signature = inspect.signature(function)
    namespace = vars(builtins) | getattr(inspect.unwrap(function), "__globals__", {})
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return signature, {
        name: (parameter.default, _evaluated(parameter.annotation, namespace))
        for name, parameter in signature.parameters.items()
        if parameter.kind not in several
    }


def _evaluated(annotation: Any, namespace: Mapping[str, Any]) -> Any:
    """The type that an annotation stands for; Any if it is known to type checkers alone."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(namespace))
    except (NameError, AttributeError, TypeError):
        return Any


_NUMBERS: dict[Any, Any] = {
    int: Integral,
    float: Real,
    bool: (int, float, np.bool_, types.NoneType),
}


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value may be given where this type is wanted; in doubt it may."""
    kind, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if kind in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is Callable or any("__call__" in vars(base) for base in getattr(wanted, "__mro__", ())):
        return callable(value)
    if isinstance(kind, type):
        return isinstance(value, kind) if issubclass(kind, Mapping) else _holds(value, kind, parts)
    if wanted in _NUMBERS:
        one = isinstance(value, np.ndarray) and value.size == 1 and wanted is not int
        return one or isinstance(value, _NUMBERS[wanted])
    unknown = not isinstance(wanted, type) or wanted in (Any, inspect.Parameter.empty)
    return unknown or getattr(wanted, "_is_protocol", False) or isinstance(value, wanted)


def _holds(value: Any, kind: type, parts: tuple[Any, ...]) -> bool:
    """Whether a value is a list, or another container of this kind, of fitting items."""
    if isinstance(value, np.ndarray) and value.ndim:
        value = list(value)
    if isinstance(value, list | tuple):
        return len(parts) != 1 or all(_fits(item, parts[0]) for item in value)
    return isinstance(value, kind) and not isinstance(value, str)


def _spoken(wanted: Any) -> str:
    """A type in the words of messages."""
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        return " or ".join(_spoken(part) for part in typing.get_args(wanted))
    if wanted is types.NoneType:
        return "None"
    if typing.get_origin(wanted) is None and isinstance(wanted, type):
        return wanted.__name__
    text = re.sub(r"\b(?:\w+\.)+(\w)", r"\1", str(wanted))
    found = re.fullmatch(r"(?:Sequence|Iterable|Collection|list)\[([\w |]+)\]", text)
    return f"a list of {found[1].replace(' | ', ' or ')}" if found else text


def _short(value: Any) -> str:
    name, spec = getattr(value, "name", None), getattr(value, "spec", None)
    if isinstance(name, str):
        return name if spec is None else f"{name} {spec}"
    return f"{' '.join(repr(value).split()):.60}"
