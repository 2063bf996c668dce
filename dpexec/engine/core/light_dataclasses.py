"""Dataclasses that are made in a third of the time.

``dataclasses.dataclass`` writes the source of up to six methods of a class, and compiles each:
100 classes took 50 ms of every import. Here only ``__init__`` is compiled. Other methods are the
same functions for all classes, over the names of their fields. The classes are dataclasses for
``fields``, ``replace`` and type checkers.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "field"]


class _Absent:
    """Stands in signatures for a value that is made for each one."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT = _Absent()
_PLAIN = {"init": False, "repr": False, "eq": False}

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        given: type | None = None,
        /,
        *,
        eq: bool = True,
        repr: bool = True,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
    ) -> Any:
        """As ``dataclasses.dataclass``, with those of its switches that are used here."""

        def made(given: type) -> type:
            cls = dataclasses.dataclass(slots=slots, kw_only=kw_only, **_PLAIN)(given)
            methods = [_init(cls, frozen, slots)]
            methods += [_repr(cls)] if repr else []
            methods += _comparisons(cls, frozen) if eq else []
            methods += _guards(cls) if frozen else []
            methods += _states(cls) if frozen and slots else []
            for method in methods:
                if given.__dict__.get(method.__name__) is None:  # with __eq__, __hash__ is None
                    method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
                    setattr(cls, method.__name__, method)
            if eq and not frozen and "__hash__" not in given.__dict__:
                cls.__hash__ = None  # equal ones may be changed
            return cls

        return made if given is None else made(given)


def _init(cls: type, frozen: bool, slots: bool) -> Callable[..., None]:
    """The only method that is compiled: its parameters are the fields."""
    parts = dataclasses.fields(cls)
    known: dict[str, Any] = {"_absent": _ABSENT, "_put": object.__setattr__}
    heads: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for part in parts:
        name, value = part.name, part.name
        if part.default_factory is not dataclasses.MISSING:
            known[f"_made_{name}"] = part.default_factory
            made = f"_made_{name}()"
            value = f"{made} if {name} is _absent else {name}" if part.init else made
            default = "=_absent"
        elif part.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = part.default
            default = f"=_default_{name}"
            value = name if part.init else f"_default_{name}"
        else:
            default = ""
        if part.init:
            heads[bool(part.kw_only)].append(name + default)
        elif part.default_factory is dataclasses.MISSING and not (slots and default):
            continue  # the class has the default, or __post_init__ brings the value
        lines.append(f"_put(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join(["self", *heads[False], *(["*", *heads[True]] if heads[True] else [])])
    body = "\n  ".join(lines) or "pass"
    exec(f"def __init__({head}):\n  {body}", known)
    found: Callable[..., None] = known["__init__"]
    found.__annotations__ = {field.name: field.type for field in parts if field.init}
    found.__annotations__["return"] = None
    found.__module__ = cls.__module__
    return found


def _values(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """A function that gives the values of some fields as a tuple.

    Tuples take an object for equal to itself, also if it is an array or not a number.
    """
    if len(names) == 1:
        (name,) = names
        return lambda found: (getattr(found, name),)
    return operator.attrgetter(*names) if names else lambda _: ()


def _repr(cls: type) -> Callable[[Any], str]:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _comparisons(cls: type, frozen: bool) -> list[Callable[..., Any]]:
    parts = dataclasses.fields(cls)
    compared = _values(tuple(field.name for field in parts if field.compare))
    counts = (field.compare if field.hash is None else field.hash for field in parts)
    hashed = _values(tuple(field.name for field, has in zip(parts, counts, strict=True) if has))

    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    return [__eq__, __hash__] if frozen else [__eq__]


def _guards(cls: type) -> list[Callable[..., None]]:
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return [__setattr__, __delattr__]


def _states(cls: type) -> list[Callable[..., Any]]:
    """What pickle stores: it could not set the fields one by one."""
    names = [field.name for field in dataclasses.fields(cls)]

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return [__getstate__, __setstate__]
