"""Strategies: objects with declared, checked attributes that are frozen once compiled with."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from dpexec.engine.core.errors import EnforceNotMet, see, similar
from dpexec.engine.ir.callsite import warn

__all__ = ["Field", "Strategy", "one_of", "optional_bool", "positive", "strings"]


class Field:
    """A checked attribute of a strategy.

    Args:
        default: the initial value.
        kind: what may be assigned: ``bool``, ``int``, ``str``, an enum, or a checking function.
        doc: one line for ``help()``.
        effective: False for a field of fluid that has no effect in dpexec; assigning a value other
            than the default warns once.
    """

    def __init__(self, default: Any, kind: Any, doc: str, effective: bool = True) -> None:
        self.default = default
        self.kind = kind
        self.effective = effective
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return instance._values[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        value = self._check(value)
        known = value == self.default or value == instance._values.get(self.name)
        if not (known or self.effective):
            _say_once(type(instance).__name__, self.name)
        instance._set(self.name, value)

    def _check(self, value: Any) -> Any:
        if not isinstance(self.kind, type):
            return self.kind(self.name, value)
        if self.kind is bool and isinstance(value, (bool, int, np.bool_)):
            return bool(value)
        if self.kind is int and isinstance(value, (int, np.integer)):
            if value < 0:
                problem = f"{self.name} must not be negative, but received {value}"
                raise see("a-field-with-a-wrong-value", TypeError(problem))
            return int(value)
        if self.kind not in (bool, int) and isinstance(value, self.kind):
            return value
        what = f"a value of type {self.kind.__name__}"
        if issubclass(self.kind, enum.Enum):
            what = " or ".join(map(str, self.kind))
        problem = f"{self.name} takes {what}, but received {value!r}"
        raise see("a-field-with-a-wrong-value", TypeError(problem))


_said: set[tuple[str, str]] = set()


def _say_once(owner: str, name: str) -> None:
    if (owner, name) not in _said:
        _said.add((owner, name))
        warn(f"{owner}.{name} is accepted but has no effect in this version of dpexec")


class Strategy:
    """Base class of objects with fields, which are frozen once a program was compiled with them."""

    _values: dict[str, Any]
    _frozen_by: str | None

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_frozen_by", None)
        for name, field in self.fields().items():
            self._values[name] = field.default

    @classmethod
    def fields(cls) -> dict[str, Field]:
        """All fields by name, those of base classes first."""
        declared = (item for kind in reversed(cls.__mro__) for item in vars(kind).items())
        return {name: value for name, value in declared if isinstance(value, Field)}

    def _set(self, name: str, value: Any) -> None:
        if value != self._values[name]:
            self._check_open(name)
        self._values[name] = value

    def _check_open(self, name: str) -> None:
        if self._frozen_by is not None:
            problem = (
                f"PreconditionNotMet: {type(self).__name__} has been finalized by "
                f"{self._frozen_by}, {name} cannot be configured again; make a new strategy and a "
                "new CompiledProgram"
            )
            raise see("a-strategy-that-was-used-already", EnforceNotMet(problem))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.fields():
            hint = similar(name, self.fields()) or f"; it has {', '.join(self.fields())}"
            problem = f"{type(self).__name__} has no field {name!r}{hint}"
            raise see("a-field-that-a-strategy-does-not-have", AttributeError(problem))
        object.__setattr__(self, name, value)

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled")

    def __repr__(self) -> str:
        changed = {
            name: value
            for name, value in self._values.items()
            if value != self.fields()[name].default
        }
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in changed.items())})"

    def with_fields(self, **values: Any) -> Self:
        """A copy that can be changed, with other values in some fields.

        Args:
            values: new values by field name; other fields are copied.

        Raises:
            AttributeError: there is no such field.
        """
        made = type(self)()
        made._values.update(self._values)
        for name, value in values.items():
            setattr(made, name, value)
        return made

    def freeze(self, by: str) -> None:
        """Reject changes from now on, as a program was compiled with the strategy."""
        object.__setattr__(self, "_frozen_by", by)

    def was_compiled(self) -> bool:
        """Whether a program was compiled with it."""
        return self._frozen_by == "compilation"


def optional_bool(name: str, value: Any) -> bool | None:
    """Check a value for a field that is True, False or None.

    Args:
        name: the field's name.
        value: the assigned value.

    Raises:
        EnforceNotMet: it is something else.
    """
    if value is None or isinstance(value, (bool, np.bool_)):
        return None if value is None else bool(value)
    raise EnforceNotMet(f"{name} takes None, True or False, but received {value!r}")


def positive(name: str, value: Any) -> int:
    """Check a value for a field that is an integer of at least 1.

    Args:
        name: the field's name.
        value: the assigned value.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, (int, np.integer)) and value >= 1:
        return int(value)
    raise TypeError(f"{name} must be an integer of at least 1, but received {value!r}")


def strings(name: str, value: Any) -> Any:
    """Check a value for a field that is a list, tuple or set of strings; returns a copy.

    Args:
        name: the field's name.
        value: the assigned value.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, (list, tuple, set)) and all(isinstance(v, str) for v in value):
        return type(value)(value)
    raise TypeError(f"{name} takes a collection of strings, but received {value!r}")


def one_of(*known: str) -> Callable[[str, Any], str]:
    """A check for a field that takes one of some words; it raises ValueError for others.

    Args:
        known: the words.
    """

    def check(name: str, value: Any) -> str:
        if value in known:
            return str(value)
        raise ValueError(f"{name} is {' or '.join(map(repr, known))}, but received {value!r}")

    return check
