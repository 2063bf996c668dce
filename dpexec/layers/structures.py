"""Structures (lists, tuples, dicts) of variables, as users' functions take and return them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpexec.engine.ir.variable import Variable

__all__ = ["flat", "mapped", "packed"]


def mapped(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Apply ``function`` to corresponding variables of structures; returns the first's structure.

    Dicts are traversed in the order of their sorted keys.

    Args:
        function: takes as many variables as there are structures.
        first: a variable, or a nested list, tuple or dict of variables.
        others: variables in the same structure.

    Raises:
        ValueError: the structures differ, or contain something other than variables.
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
    """The variables in a structure, in the order in which :func:`mapped` traverses them.

    Raises:
        ValueError: the structure contains something other than variables.
    """
    found: list[Variable] = []
    mapped(found.append, structure)
    return found


def packed(like: Any, variables: Iterable[Variable]) -> Any:
    """Arrange variables in a given structure.

    Args:
        like: the structure.
        variables: the variables in the order of :func:`flat`.
    """
    rest = iter(variables)
    return mapped(lambda _: next(rest), like)
