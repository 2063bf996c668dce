"""Lists, tuples and dicts of variables, as functions of the user take and return them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpexec.ir.variable import Variable

__all__ = ["mapped"]


def mapped(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """``function`` of corresponding variables in structures, in a structure like the first.

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
        made = {key: mapped(function, first[key], *(o[key] for o in others)) for key in first}
        return type(first)(made)  # type: ignore[call-arg]
    if isinstance(first, (list, tuple)):
        if not all(isinstance(o, (list, tuple)) and len(o) == len(first) for o in others):
            raise ValueError(f"not all are sequences of {len(first)} elements")
        items = [mapped(function, *parts) for parts in zip(first, *others, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    for value in (first, *others):
        if not isinstance(value, Variable):
            raise ValueError(f"expected a Variable, but received {type(value).__name__}")
    return function(first, *others)
