"""What a name in a docstring or a signature means, without Sphinx.

The site resolves references with it (``api_pages``), and the tests check them with it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import public_names

ABBREVIATED = {"np": "numpy", "fluid": "dpexec", "da": "dask.array", "dd": "dask.dataframe"}

HOMES = {
    public_names.identity(name.value): name.home
    for name in public_names.names()
    if public_names.identity(name.value)
}
"""The full public name of each object, by module and name of its definition."""

Meaning = tuple[tuple[str, str] | None, str]


def expanded(target: str) -> str:
    """A name with its abbreviated module written out: ``np.ndarray`` is ``numpy.ndarray``."""
    first, dot, rest = target.partition(".")
    return f"{ABBREVIATED[first]}.{rest}" if dot and first in ABBREVIATED else target


def meanings(target: str, spaces: Iterable[Any]) -> Iterator[Meaning]:
    """Objects that a name may be, as (identity, attributes of it that are named behind).

    Args:
        target: the name, with dots.
        spaces: classes and modules in which it is looked up, besides the module that it begins
            with.
    """
    parts = target.split(".")
    places = [(space, parts) for space in spaces]
    for end in range(len(parts) - 1, 0, -1):
        if (found := module(".".join(parts[:end]))) is not None:
            places.append((found, parts[end:]))
            break
    for space, path in places:
        if (value := reach(space, path)) is not None:
            yield public_names.identity(value), ""
        owner = reach(space, path[:-1]) if len(path) > 1 else None
        if owner is not None and hasattr(owner, path[-1]):
            yield public_names.identity(owner), f".{path[-1]}"


def around(value: Any) -> Iterator[Any]:
    """Where the documentation of an object looks names up: a class, and modules of its bases."""
    if isinstance(value, type):
        yield value
        yield from (sys.modules[base.__module__] for base in value.__mro__)
    elif (found := sys.modules.get(getattr(value, "__module__", None) or "")) is not None:
        yield found


def module(name: str) -> Any:
    """The module of dpexec with this full name, or None."""
    if not name.startswith("dpexec"):
        return None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def reach(space: Any, path: list[str]) -> Any:
    """The attribute of an attribute ... of an object, or None."""
    for part in path:
        space = getattr(space, part, None)
    return space
