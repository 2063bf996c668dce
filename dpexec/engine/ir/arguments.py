"""Arguments of variables, of the types that Paddle's binding of C++ converts them to.

What pybind does not convert is a TypeError, here as there: a float is no integer, even if it is
whole, and text is no truth value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type

__all__ = ["as_dtype", "as_flag", "as_integer", "as_kind", "as_name", "as_shape"]

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
        value: an integer of Python or NumPy; a float32 or float16 of NumPy counts if it is whole.
        what: it is, for the message.

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
    """Dimensions as declared, -1 for those that a batch will tell (-1 or None).

    Args:
        values: of a variable.
        name: its name; None if it has none yet.

    Raises:
        TypeError: they are no list of integers.
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
        what: it is, for the message.

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
        ValueError: it is a type of NumPy that no tensor of fluid has.
    """
    if isinstance(value, int) and not isinstance(value, VarType):
        raise _refused("the data type of a variable", "a VarType or a NumPy type", value)
    return as_var_type(value)


def as_kind(value: Any) -> VarType:
    """What a variable holds.

    Raises:
        TypeError: it is no ``VarType``.
    """
    if not isinstance(value, VarType):
        raise _refused("type of a variable", "a VarType", value)
    return value


def _refused(what: str, wanted: str, value: Any) -> TypeError:
    shown = " ".join(repr(value).split())
    return TypeError(f"{what} must be {wanted}, but is {type(value).__name__} ({shown:.80})")
