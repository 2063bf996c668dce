"""A partition of a Dask collection as arrays: one for each variable, of its declared type.

Runs where the partition lies, so nothing here knows of programs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.errors import see
from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["FedRows", "check_kind", "is_pandas", "partition_arrays"]

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class FedRows:
    """A variable that is fed with rows of partitions.

    Args:
        name: name of the variable.
        dtype: type of its elements.
        tail: dimensions of a row; -1 for any size.
        columns: the columns of a dataframe that make a row; (): rows come as they are.
    """

    name: str
    dtype: np.dtype[Any]
    tail: tuple[int, ...]
    columns: tuple[Any, ...] = ()

    def no_rows(self) -> np.ndarray[Any, Any]:
        """The array of a partition without rows."""
        return np.empty((0, *(max(size, 0) for size in self.tail)), self.dtype)


def partition_arrays(variables: Sequence[FedRows], number: int, *parts: Any) -> Arrays:
    """The rows of a partition for each variable.

    Args:
        variables: the variables.
        number: number of the partition, for errors.
        parts: the computed partition: a dataframe, a list of a bag's elements, arrays by name, a
            tuple of arrays in the order of the variables, or an array; or one of these per
            variable.

    Raises:
        TypeError: a column or an array holds no numbers, or is missing.
        ValueError: numbers or shapes do not fit the variables, or rows are missing.
    """
    where = f"partition {number}"
    if len(parts) == 1:
        found = _by_name(variables, parts[0], where)
    else:
        pairs = zip(variables, parts, strict=True)
        found = {var.name: _by_name([var], part, where)[var.name] for var, part in pairs}
    made = {var.name: _rows(var, found[var.name], where) for var in variables}
    rows = {name: len(array) for name, array in made.items()}
    if len(set(rows.values())) > 1:
        shown = ", ".join(f"{count} for {name!r}" for name, count in rows.items())
        raise ValueError(f"{where} has different numbers of rows: {shown}")
    return made


def _by_name(variables: Sequence[FedRows], part: Any, where: str) -> dict[str, Any]:
    """The part of a computed partition for each variable."""
    names = [var.name for var in variables]
    if is_pandas(part) and part.ndim == 2:
        if len(variables) > 1 and not all(var.columns for var in variables):
            raise TypeError(
                f"{where} is a dataframe: say which columns {', '.join(map(repr, names))} get, as "
                "with feed={'x': ['a', 'b'], 'y': 'label'}"
            )
        return {var.name: _columns(var, part, where) for var in variables}
    if any(var.columns for var in variables) and not is_pandas(part):
        raise TypeError(
            f"{where} is a {type(part).__name__}, but feed says which columns variables get, which "
            "only dataframes have"
        )
    if isinstance(part, list):
        return _of_elements(variables, part, where)
    if isinstance(part, Mapping):
        if missing := [name for name in names if name not in part]:
            raise TypeError(f"{where} has nothing for {', '.join(map(repr, missing))}")
        return {name: part[name] for name in names}
    if isinstance(part, tuple):
        if len(part) != len(names):
            raise TypeError(
                f"{where} is a tuple of {len(part)}, but there are {len(names)} variables: "
                f"{', '.join(names)}"
            )
        return dict(zip(names, part, strict=True))
    if len(names) > 1:
        raise TypeError(
            f"{where} is a {type(part).__name__}, which feeds one variable, but there are "
            f"{len(names)}: {', '.join(names)}"
        )
    return {names[0]: part}


def _of_elements(
    variables: Sequence[FedRows], elements: Sequence[Any], where: str
) -> dict[str, Any]:
    """The rows of each variable; an element of the bag has one row of every variable."""
    if not elements:
        return {var.name: var.no_rows() for var in variables}
    rows = [
        _by_name(variables, element, f"element {index} of {where}")
        for index, element in enumerate(elements)
    ]
    found = {}
    for var in variables:
        try:
            found[var.name] = np.stack([np.asarray(row[var.name]) for row in rows])
        except ValueError as error:
            raise ValueError(f"{where}, rows of {var.name!r}: {error}") from None
    return found


def is_pandas(value: Any) -> bool:
    """Whether a value is a dataframe or a column of pandas, which need not be installed.

    Args:
        value: told by its methods; dataframes of Dask lack one of them.
    """
    return hasattr(type(value), "iloc") and hasattr(type(value), "iat")


def _columns(var: FedRows, frame: Any, where: str) -> np.ndarray[Any, Any]:
    """Some columns of a dataframe, side by side."""
    columns = var.columns or tuple(frame.columns)
    if missing := [column for column in columns if column not in frame.columns]:
        raise TypeError(f"{where} has no column {missing[0]!r} for {var.name!r}")
    chosen = frame if columns == tuple(frame.columns) else frame[list(columns)]
    kinds = set(chosen.dtypes)
    if len(kinds) == 1 and isinstance(next(iter(kinds)), np.dtype):
        check_kind(var, next(iter(kinds)), f"{where}, column {columns[0]!r}")
        return _cast(var, chosen.to_numpy(), where, columns)
    made = np.empty((len(frame), len(columns)), var.dtype)
    for index, column in enumerate(columns):
        numbers = _numbers(var, frame[column], f"{where}, column {column!r}")
        made[:, index] = _cast(var, numbers[:, np.newaxis], where, (column,))[:, 0]
    return made


def check_kind(var: FedRows, dtype: Any, place: str) -> None:
    """Refuse a column, or an array, that holds no numbers.

    Args:
        var: the variable that it feeds.
        dtype: a type of NumPy, or of an extension of pandas.
        place: column and partition, for errors.

    Raises:
        TypeError: it holds no numbers.
    """
    if getattr(dtype, "kind", "O") not in "biuf":
        problem = (
            f"{place} of type {dtype} cannot feed Variable {var.name!r}, which holds {var.dtype}: "
            "make numbers of it before (categories have .cat.codes), or leave it out"
        )
        raise see("columns-that-cannot-be-fed", TypeError(problem))


def _numbers(var: FedRows, column: Any, place: str) -> np.ndarray[Any, Any]:
    """A column of a dataframe as an array of numbers; what is missing is NaN."""
    check_kind(var, column.dtype, place)
    if isinstance(column.dtype, np.dtype):
        return np.asarray(column.to_numpy())
    if not column.isna().any():
        widest = {"b": "bool", "i": "int64", "u": "uint64", "f": "float64"}[column.dtype.kind]
        return np.asarray(column.to_numpy(dtype=widest))
    if var.dtype.kind != "f":
        raise ValueError(
            f"{place} lacks values, but {var.name!r} is of type {var.dtype}, which has no NaN"
        )
    return np.asarray(column.to_numpy(dtype=var.dtype, na_value=np.nan))


def _rows(var: FedRows, part: Any, where: str) -> np.ndarray[Any, Any]:
    """The rows in the type and shape of a variable."""
    place = f"{where}, Variable {var.name!r}"
    if hasattr(type(part), "to_frame") and part.ndim == 1:  # a column
        array = _cast(var, _numbers(var, part, place), place)
    else:
        if hasattr(type(part), "toarray"):  # a sparse matrix
            part = part.toarray()
        array = np.asarray(part)
        check_kind(var, array.dtype, f"{where}: an array")
        array = _cast(var, array, place)
    if not array.ndim:
        raise ValueError(f"{place} gets a number, which has no rows")
    if not len(array):
        return var.no_rows()
    if array.ndim <= 2:  # flat rows, as columns are
        with contextlib.suppress(ValueError):
            array = array.reshape(len(array), *var.tail)
    fits = len(array.shape) == len(var.tail) + 1 and all(
        size in (-1, found) for size, found in zip(var.tail, array.shape[1:], strict=True)
    )
    if not fits:
        raise ValueError(
            f"{place} should have the shape {[-1, *var.tail]}, but received {list(array.shape)}"
        )
    return np.ascontiguousarray(array)


def _cast(
    var: FedRows, array: np.ndarray[Any, Any], place: str, columns: Sequence[Any] = ()
) -> np.ndarray[Any, Any]:
    """The same numbers in the type of a variable; floats may be rounded, nothing else changes."""
    if array.dtype == var.dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        made = array.astype(var.dtype)
        if var.dtype.kind == "f":
            wrong = np.isinf(made) & np.isfinite(array)
        elif {array.dtype.kind, var.dtype.kind} <= {"i", "u"}:
            wrong = _out_of_range(array, np.iinfo(var.dtype))
        else:
            wrong = made.astype(array.dtype) != array
    if wrong.any():
        first = tuple(np.argwhere(wrong)[0])
        place = f"{place}, column {columns[first[1]]!r}" if columns else place
        problem = (
            f"{place} holds {array[first]} in row {first[0]}, but {var.name!r} is of type "
            f"{var.dtype}, which cannot"
        )
        raise see("columns-that-cannot-be-fed", ValueError(problem))
    return made


def _out_of_range(array: np.ndarray[Any, Any], limits: np.iinfo[Any]) -> np.ndarray[Any, Any]:
    """Which integers a type cannot hold."""
    own = np.iinfo(array.dtype)  # beyond which NumPy compares nothing
    low, high = max(int(limits.min), int(own.min)), min(int(limits.max), int(own.max))
    return (array < low) | (array > high)
