"""Shorter JSON for large pages: integers as differences, records as columns, words once.

viz/web/src/packing.ts unpacks it. A packed value is an object whose key "@" names the method. Short
values are not packed, so that both programs visit few values only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter, sub
from typing import Any

MARK = "@"
_LONG = 64  # elements; shorter lists are not packed
_KEYS = 40  # the most keys of records that are packed
_NUMBERS = {int, type(None)}
_WORDS = {str, type(None)}
_PLAIN = {str, int, float, bool, type(None)}


def packed(value: Any) -> Any:
    """Return a JSON value in a shorter form.

    Args:
        value: A value of dicts with strings as keys, lists, tuples, strings, numbers and None.
    """
    if isinstance(value, dict):
        made = {key: packed(inner) for key, inner in value.items()}
        return {MARK: "same", "value": made} if MARK in value else made
    if not isinstance(value, (list, tuple)):
        return value
    kinds = set(map(type, value))
    if len(value) < _LONG:
        return value if kinds <= _PLAIN else [packed(inner) for inner in value]
    if kinds <= _NUMBERS:
        return _numbers(value)
    if kinds <= _WORDS:
        return _words(value)
    if kinds <= {list, tuple} and set(map(type, chain.from_iterable(value))) <= {int}:
        return _lists(value)
    return _records(value) if kinds == {dict} else value


def _numbers(values: Sequence[int | None]) -> Any:
    """The first number, then the differences of neighbours, if that is shorter."""
    known = [one for one in values if one is not None]
    steps: list[int] = [*known[:1], *map(sub, known[1:], known)]
    if 2 * sum(map(abs, steps)) >= sum(map(abs, known)):
        return values
    if len(known) < len(values):
        rest = iter(steps)
        return {MARK: "steps", "of": [None if one is None else next(rest) for one in values]}
    return {MARK: "steps", "of": steps}


def _words(values: Sequence[str | None]) -> Any:
    """Positions in a list of the distinct words, if many are equal."""
    number = {word: at for at, word in enumerate(dict.fromkeys(values))}
    if 4 * len(number) > len(values):
        return values
    return {MARK: "words", "words": list(number), "of": _numbers([number[one] for one in values])}


def _lists(values: Sequence[Sequence[int]]) -> Any:
    """One list of differences to the previous number; a list's first, to the previous first."""
    flat, head = [], 0
    for one in values:
        last = head
        for at, number in enumerate(one):
            flat.append(number - last)
            last = number
            if at == 0:
                head = number
    return {MARK: "lists", "lengths": _numbers([len(one) for one in values]), "of": flat}


def _records(values: Sequence[dict[str, Any]]) -> Any:
    """A column for each key; if some records lack a key, its column tells which ones have it.

    Records with many keys are tables by name themselves, and are not packed.
    """
    shapes = set(map(tuple, values))
    keys = dict.fromkeys(chain.from_iterable(shapes))
    if len(keys) > _KEYS or MARK in keys:
        return values
    columns: dict[str, Any] = {}
    partial: dict[str, Any] = {}
    for key in keys:
        if len(shapes) == 1 or all(key in shape for shape in shapes):
            columns[key] = packed([*map(itemgetter(key), values)])
        else:
            at = [number for number, one in enumerate(values) if key in one]
            partial[key] = [packed(at), packed([values[number][key] for number in at])]
    return {MARK: "records", "count": len(values), "columns": columns, "partial": partial}
