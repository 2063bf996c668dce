"""Check and convert arguments of variables as Paddle's pybind11 bindings do.

A value that pybind11 would not convert raises TypeError, as in Paddle: a float is not an integer,
even if it is whole, and text is not a truth value.
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
