"""Checks of arguments, raising the same exception classes as fluid."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, dtype_name
from dpexec.engine.core.errors import see
from dpexec.engine.ir.variable import Variable

__all__ = [
    "FLOATS",
    "INTEGERS",
    "NO_HALF",
    "NUMBERS",
    "SINGLE_DOUBLE",
    "as_number",
    "check_choice",
    "check_dtype",
    "check_type",
    "check_variable_and_dtype",
    "convert_dtype",
    "pair",
]

FLOATS = ("float16", "float32", "float64")
SINGLE_DOUBLE = ("float32", "float64")
INTEGERS = ("int32", "int64")
NUMBERS = (*FLOATS, *INTEGERS)
NO_HALF = (*SINGLE_DOUBLE, *INTEGERS)
"""The element types that layers take, by name, as error messages list them."""


_NAMES = ("bool", *FLOATS, "int8", "int16", *INTEGERS, "uint8")


def convert_dtype(dtype: Any) -> str:
    """The name of a data type, given as a name, a NumPy type or a ``VarType``.

    Raises:
        ValueError: tensors do not support this type.

    Example:
        >>> import dpexec as fluid
        >>> fluid.data_feeder.convert_dtype(fluid.core.VarDesc.VarType.FP32)
        'float32'
    """
    kind = isinstance(dtype, type) and (dtype is bool or issubclass(dtype, np.generic))
    if not kind and not isinstance(dtype, (VarType, np.dtype)) and dtype not in _NAMES:
        raise ValueError(f"dtype must be one of {', '.join(_NAMES)}, but received {dtype!r}")
    try:
        return dtype_name(as_var_type(dtype))
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"dtype must be one that tensors have, but received {dtype!r}") from error


def as_number(value: Any) -> float:
    """A number, given as a number or as an array with one element.

    Raises:
        TypeError: the value is neither of them.
        ValueError: it is a string that cannot be parsed as a number.
    """
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise TypeError(f"one number is expected, not an array of shape {list(value.shape)}")
        value = value.item()
    return float(value)


def check_type(
    value: Any, name: str, expected: type | tuple[type, ...], layer: str, hint: str = ""
) -> None:
    """Check the type of an argument.

    Args:
        value: the argument's value.
        name: the argument's name, for the error message.
        expected: the type, or a tuple of the types, that it may have.
        layer: the layer that checks, for the error message.
        hint: appended to the error message.

    Raises:
        TypeError: the value has another type.
    """
    kinds = expected if isinstance(expected, tuple) else (expected,)
    if isinstance(value, kinds) or (isinstance(value, np.integer) and int in kinds):
        return
    names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
    problem = (
        f"The type of '{name}' in {layer} must be {names}, "
        f"but received {type(value).__name__} ({value!r:.80}). {hint}".rstrip()
    )
    raise see("a-layer-that-takes-another-type", TypeError(problem))


def check_dtype(
    dtype: Any, name: str, expected: Collection[str], layer: str, hint: str = ""
) -> None:
    """Check a data type.

    Raises:
        TypeError: it is not one of the expected data types.
        ValueError: tensors do not support this data type.
    """
    found = convert_dtype(dtype)
    if found not in expected:
        problem = (
            f"The data type of '{name}' in {layer} must be {', '.join(expected)}, "
            f"but received {found}. {hint}".rstrip()
        )
        raise see("a-layer-that-takes-another-type", TypeError(problem))


def check_variable_and_dtype(
    value: Any, name: str, expected: Collection[str], layer: str, hint: str = ""
) -> None:
    """Check that an argument is a variable of one of these data types.

    Raises:
        TypeError: it is not.
    """
    check_type(value, name, Variable, layer, hint)
    check_dtype(value.dtype, name, expected, layer, f"{hint} It is variable {value.name}.")


def check_choice(value: Any, name: str, choices: Sequence[Any], layer: str) -> None:
    """Check that an argument is one of a few values.

    Raises:
        ValueError: it is not.
    """
    if value not in choices:
        known = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"'{name}' in {layer} must be {known}, but received {value!r}")


def pair(value: Any, name: str, count: int = 2) -> list[int]:
    """``count`` integers from one integer (repeated) or a sequence.

    Raises:
        ValueError: neither an integer nor ``count`` of them.
    """
    values = [value] * count if isinstance(value, (int, np.integer)) else value
    if (
        isinstance(values, (list, tuple, np.ndarray))
        and len(values) == count
        and all(isinstance(v, (int, np.integer)) for v in values)
    ):
        return [int(v) for v in values]
    raise ValueError(f"'{name}' must be an integer or {count} of them, but received {value!r}")
