"""Rows with the same fields as JSON, column by column: the files are small and fast to read.

Repeated texts and objects are stored once; their columns hold positions in a list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

__all__ = ["Columns", "TraceFormatError", "pack", "typed", "unpack"]

Columns = Mapping[str, Literal["text", "number", "integer", "integer or null", "object"]]
"""The types of a row's fields, by name."""

_ALLOWED: dict[str, tuple[type, ...]] = {
    "number": (float, int),
    "integer": (int,),
    "integer or null": (int, type(None)),
    "text": (str,),
    "object": (dict,),
}


class TraceFormatError(ValueError):
    """A file or object is not a trace that this version of dpexec can read."""


def pack(columns: Columns, rows: Sequence[Any]) -> dict[str, Any]:
    """The rows, objects with an attribute per column, as plain JSON values.

    Args:
        columns: the types of the fields.
        rows: rows of one kind.

    Returns:
        Number of rows, columns, texts and objects.
    """
    texts: dict[str, int] = {}
    objects: dict[str, int] = {}
    known: dict[int, int] = {}  # rows share objects

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    def mapping(value: Mapping[str, Any]) -> int:
        found = known.get(id(value))
        if found is None:
            form = json.dumps(dict(value), sort_keys=True)
            found = known[id(value)] = objects.setdefault(form, len(objects))
        return found

    packed: dict[str, list[Any]] = {}
    change: dict[str, Callable[[Any], int]] = {"text": text, "object": mapping}
    for name, kind in columns.items():
        column = map(attrgetter(name), rows)
        packed[name] = list(map(change[kind], column)) if kind in change else list(column)
    return {
        "count": len(rows),
        "columns": packed,
        "texts": list(texts),
        "objects": [json.loads(form) for form in objects],
    }


def unpack(columns: Columns, data: Any, what: str) -> Iterator[tuple[Any, ...]]:
    """The rows that :func:`pack` was called with, as tuples.

    Args:
        columns: the types of the fields.
        data: the JSON values.
        what: a name of the rows for error messages.

    Raises:
        TraceFormatError: a part is missing or has the wrong type.
    """
    tables: dict[str, list[Any]] = {}
    try:
        tables = {"text": list(data["texts"]), "object": list(data["objects"])}
        found = {name: data["columns"][name] for name in columns}
        count = data["count"]
    except (TypeError, KeyError) as error:
        raise TraceFormatError(f"damaged: {what} has no field {error}") from error
    for name, column in found.items():
        if not isinstance(column, list) or len(column) != count:
            raise TraceFormatError(f"damaged: column {name} of {what} has not {count} values")
    if not all(isinstance(text, str) for text in tables["text"]):
        raise TraceFormatError(f"damaged: not all texts of {what} are texts")
    if not all(isinstance(item, dict) for item in tables["object"]):
        raise TraceFormatError(f"damaged: not all objects of {what} are objects")
    read = [_column(column, columns[name], tables, what) for name, column in found.items()]
    return zip(*read, strict=True)


def typed(columns: Columns, found: Mapping[str, list[Any]], what: str) -> Iterator[tuple[Any, ...]]:
    """The rows of plain columns, without lists of repeated values, as tuples.

    Args:
        columns: the types of the fields.
        found: the values by column name.
        what: a name of the rows for error messages.

    Raises:
        TraceFormatError: a value is of another type.
    """
    read = [_plain(found[name], kind, what) for name, kind in columns.items()]
    return zip(*read, strict=True)


def _plain(column: list[Any], kind: str, what: str) -> list[Any]:
    wrong = {type(value) for value in column} - set(_ALLOWED[kind])
    if wrong:
        names = ", ".join(sorted(found.__name__ for found in wrong))
        raise TraceFormatError(f"damaged: {what} holds {names} where {kind} should be")
    return column


def _column(
    column: list[Any], kind: str, tables: Mapping[str, list[Any]], what: str
) -> Iterable[Any]:
    if kind not in tables:
        return _plain(column, kind, what)
    table = tables[kind]
    if {type(value) for value in column} - {int} or (
        column and not 0 <= min(column) <= max(column) < len(table)
    ):
        raise TraceFormatError(f"damaged: {what} refers to a {kind} that is not there")
    return map(table.__getitem__, column)
