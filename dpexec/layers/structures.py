"""Lists, tuples and dicts of variables, as functions of the user take and return them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpexec.engine.ir.variable import Variable

__all__ = ["flat", "mapped", "packed"]


def mapped(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """``function`` of corresponding variables in structures, in a structure like the first.

    Dicts are gone through in the order of their sorted keys.

    Args:
        function: takes as many variables as there are structures.
        first: a variable, or a list, tuple or dict of them, or of such.
        others: arranged alike.

    Raises:
        ValueError: they are not, or something else than a variable is in them.
    """
    if isinstance(first, Mapping):
        if not all(isinstance(o, Mapping) and o.keys() == first.keys() for o in others):
            raise ValueError(f"the keys {sorted(first)} differ")
        made = {key: mapped(function, *(o[key] for o in (first, *others))) for key in sorted(first)}
        return type(first)({key: made[key] for key in first})  # type: ignore[call-arg]
    if isinstance(first, (list, tuple)):
        if not all(isinstance(o, (list, tuple)) and len(o) == len(first) for o in others):
            raise ValueError(f"not all are sequences of {len(first)} elements")
        items = [mapped(function, *parts) for parts in zip(first, *others, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    for value in (first, *others):
        if not isinstance(value, Variable):
            raise ValueError(f"expected a Variable, but received {type(value).__name__}")
    return function(first, *others)


def flat(structure: Any) -> list[Variable]:
    """The variables in a structure, in the order in which :func:`mapped` goes through them.

    Raises:
        ValueError: something else is in it.
    """
    found: list[Variable] = []
    mapped(found.append, structure)
    return found


def packed(like: Any, variables: Iterable[Variable]) -> Any:
    """As many variables as a structure has, in such a structure.

    Args:
        like: the structure.
        variables: in the order of :func:`flat`.
    """
    rest = iter(variables)
    return mapped(lambda _: next(rest), like)
