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

    Args:
        dtype: such as ``"float32"``, ``np.float32`` or ``fluid.core.VarType.FP32``.

    Returns:
        The name, such as ``"float32"``.

    Raises:
        ValueError: tensors do not support this type.

    Example:
        >>> import dpexec as fluid
        >>> fluid.data_feeder.convert_dtype(fluid.core.VarDesc.VarType.FP32)
        'float32'
    """
    kind = isinstance(dtype, type) and (dtype is bool or issubclass(dtype, np.generic))
    named = isinstance(dtype, str) and dtype in _NAMES
    if not (kind or named or isinstance(dtype, (VarType, np.dtype))):
        shown = " ".join(repr(dtype).split())
        raise ValueError(f"dtype must be one of {', '.join(_NAMES)}, but received {shown:.80}")
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
    input: Any,
    input_name: str,
    expected_type: type | tuple[type, ...],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Check the type of an argument.

    Args:
        input: the argument's value.
        input_name: the argument's name, for the error message.
        expected_type: the type, or a tuple of the types, that it may have.
        op_name: the layer that checks, for the error message.
        extra_message: appended to the error message.

    Raises:
        TypeError: the value has another type.

    Example:
        >>> from dpexec import data_feeder
        >>> data_feeder.check_type(3, "size", int, "my_layer")
        >>> try:
        ...     data_feeder.check_type("3", "size", int, "my_layer")
        ... except TypeError as error:
        ...     print(str(error).splitlines()[0])
        The type of 'size' in my_layer must be int, but received str ('3').
    """
    kinds = expected_type if isinstance(expected_type, tuple) else (expected_type,)
    if isinstance(input, kinds) or (isinstance(input, np.integer) and int in kinds):
        return
    names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
    problem = (
        f"The type of '{input_name}' in {op_name} must be {names}, "
        f"but received {type(input).__name__} ({input!r:.80}). {extra_message}".rstrip()
    )
    raise see("a-layer-that-takes-another-type", TypeError(problem))


def check_dtype(
    input_dtype: Any,
    input_name: str,
    expected_dtype: Collection[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Check a data type.

    Args:
        input_dtype: a data type, as for :func:`convert_dtype`.
        input_name: the argument's name, for the error message.
        expected_dtype: names of the data types that it may have.
        op_name: the layer that checks, for the error message.
        extra_message: appended to the error message.

    Raises:
        TypeError: it is not one of the expected data types.
        ValueError: tensors do not support this data type.

    Example:
        >>> from dpexec import data_feeder
        >>> data_feeder.check_dtype("float32", "x", ["float32", "float64"], "my_layer")
        >>> try:
        ...     data_feeder.check_dtype("int64", "x", ["float32", "float64"], "my_layer")
        ... except TypeError as error:
        ...     print(str(error).splitlines()[0])
        The data type of 'x' in my_layer must be float32, float64, but received int64.
    """
    found = convert_dtype(input_dtype)
    if found not in expected_dtype:
        problem = (
            f"The data type of '{input_name}' in {op_name} must be {', '.join(expected_dtype)}, "
            f"but received {found}. {extra_message}".rstrip()
        )
        raise see("a-layer-that-takes-another-type", TypeError(problem))


def check_variable_and_dtype(
    input: Any,
    input_name: str,
    expected_dtype: Collection[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Check that an argument is a variable of one of these data types.

    Args:
        input: the argument's value.
        input_name: the argument's name, for the error message.
        expected_dtype: names of the data types that it may have.
        op_name: the layer that checks, for the error message.
        extra_message: appended to the error message.

    Raises:
        TypeError: it is not.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     ids = fluid.data("ids", [None, 1], "int64")
        >>> try:
        ...     fluid.data_feeder.check_variable_and_dtype(ids, "x", ["float32"], "my_layer")
        ... except TypeError as error:
        ...     print(str(error).splitlines()[0])
        The data type of 'x' in my_layer must be float32, but received int64.  It is variable ids.
    """
    check_type(input, input_name, Variable, op_name, extra_message)
    hint = f"{extra_message} It is variable {input.name}."
    check_dtype(input.dtype, input_name, expected_dtype, op_name, hint)


def check_choice(value: Any, name: str, choices: Sequence[Any], layer: str) -> None:
    """Check that an argument is one of a few values.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, np.ndarray) or value not in choices:
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
