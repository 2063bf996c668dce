"""Check and convert arguments of variables, and name the wrong argument of a call that failed.

Variables' arguments are converted as by Paddle's pybind11 bindings. A value that pybind11 would not
convert raises TypeError, as in Paddle: a float is not an integer, even if it is whole, and text is
not a truth value.

Other functions compute with their arguments at once. If that fails, :func:`explain` compares the
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
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type
from dpexec.engine.core.errors import EnforceNotMet, see

__all__ = [
    "UNNAMED",
    "as_dtype",
    "as_flag",
    "as_integer",
    "as_kind",
    "as_name",
    "as_shape",
    "check_types",
    "explain",
    "explained",
    "refuse_misfit",
]

P = ParamSpec("P")
R = TypeVar("R")

_INT64 = range(-(2**63), 2**63)


def as_name(value: Any) -> str:
    """A name, given as text or bytes.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise _refused("the name of a variable", "a string", value)
    return value


def as_integer(value: Any, what: str) -> int:
    """An integer of 64 bits.

    Args:
        value: a Python or NumPy integer, or a NumPy float32 or float16 that is whole.
        what: name of the argument in the error message.

    Raises:
        TypeError: it is something else.
    """
    small = isinstance(value, (np.float32, np.float16)) and value.is_integer()
    if isinstance(value, (int, np.integer, np.bool_)) or small:
        number = int(value)
        if number in _INT64:
            return number
    raise _refused(what, "an integer of 64 bits", value)


def as_shape(values: Any, name: str | None) -> tuple[int, ...]:
    """Check a declared shape; dimensions that depend on the batch (-1 or None) become -1.

    Args:
        values: the dimensions.
        name: the variable's name in the error message; None if it has none yet.

    Raises:
        TypeError: ``values`` is not a list of integers.
    """
    what = f"the shape of variable {name}" if name else "the shape of a variable"
    if not isinstance(values, Iterable):
        raise _refused(what, "a list of integers", values)
    what = f"a dimension in {what}"
    return tuple(-1 if size is None else as_integer(size, what) for size in values)


def as_flag(value: Any, what: str) -> bool:
    """A truth value, given as a bool or a number; None is False.

    Args:
        value: the argument.
        what: name of the argument in the error message.

    Raises:
        TypeError: it is something else.
    """
    if value is None or isinstance(value, (bool, int, float, np.number, np.bool_)):
        return bool(value)
    raise _refused(what, "a bool", value)


def as_dtype(value: Any) -> VarType:
    """An element type, given as a ``VarType``, a NumPy type or a name.

    Raises:
        TypeError: it is something else, such as the number of a ``VarType``.
        ValueError: it is a NumPy type that fluid's tensors do not support.
    """
    if isinstance(value, int) and not isinstance(value, VarType):
        raise _refused("the data type of a variable", "a VarType or a NumPy type", value)
    return as_var_type(value)


def as_kind(value: Any) -> VarType:
    """Check that a value is a ``VarType``, the kind of a variable.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, VarType):
        raise _refused("type of a variable", "a VarType", value)
    return value


def _refused(what: str, wanted: str, value: Any) -> TypeError:
    shown = " ".join(repr(value).split())
    return TypeError(f"{what} must be {wanted}, but is {type(value).__name__} ({shown:.80})")


# ---- errors of calls

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
    refuse_misfit(function, inspect.signature(function).bind(*args, **kwargs).arguments)


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
    namespace = vars(builtins) | getattr(inspect.unwrap(function), "__globals__", {})
    for name, parameter in inspect.signature(function).parameters.items():
        several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if several or name not in given or given[name] is parameter.default:
            continue
        wanted, value = _evaluated(parameter.annotation, namespace), given[name]
        if not _fits(value, wanted):
            made = function.__name__ == "__init__" and "self" in given
            called = type(given["self"]).__name__ if made else function.__qualname__
            problem = (
                f"The type of '{name}' in {called} must be {_spoken(wanted)}, "
                f"but received {type(value).__name__} ({' '.join(repr(value).split()):.80})"
            )
            raise see("a-layer-that-takes-another-type", TypeError(problem)) from error


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
