"""Messages of Paddle's ``framework.proto`` with the interface that protobuf gives them."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any, ClassVar, Self

from dpexec.engine.formats import wire
from dpexec.engine.ir.printer import message_text

__all__ = ["Codes", "Message", "Repeated"]

_DEFAULTS: dict[str, Any] = {"int": 0, "bool": False, "float": 0.0, "str": ""}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


_TAKEN: dict[str, Callable[[Any], Any]] = {
    "int": operator.index,
    "bool": bool,
    "float": float,
    "str": _text,
}
"""How a value becomes one of a field; a fraction is refused where a whole number belongs."""


class Codes:
    """An enumeration, as protobuf shows it.

    Args:
        kinds: what it enumerates.
    """

    def __init__(self, kinds: type[enum.IntEnum]) -> None:
        self._kinds = kinds

    def Name(self, number: int) -> str:
        """The name of a number; ValueError if it has none."""
        return self._kinds(number).name

    def Value(self, name: str) -> int:
        """The number that a name stands for; ValueError if it stands for none."""
        if name not in self._kinds.__members__:
            raise ValueError(f"{self._kinds.__name__} has no value {name!r}")
        return int(self._kinds[name])


class Repeated(list[Any]):
    """What a repeated field holds.

    Args:
        made: the type of the messages that it holds; None for one of numbers or texts.
    """

    def __init__(self, made: type[Message] | None) -> None:
        super().__init__()
        self._made = made

    def add(self, **fields: Any) -> Any:
        """Append a message and return it.

        Raises:
            AttributeError: the field holds no messages.
        """
        if self._made is None:
            raise AttributeError("a field of numbers or texts has no add: use append")
        self.append(self._made(**fields))
        return self[-1]


class Message:
    """A message; its fields are attributes.

    Reading a field that is not set gives its default, and sets nothing. Unlike protobuf it does not
    insist on required fields.

    Args:
        fields: values of fields; lists for repeated ones.

    Raises:
        AttributeError: there is no such field, or a whole list or message is assigned to one.
    """

    kind: ClassVar[str]
    """Its name in :data:`dpexec.engine.formats.wire.FIELDS`."""
    made: ClassVar[dict[str, type[Message]]] = {}
    """The types of all messages, by their kind."""
    defaults: ClassVar[dict[str, Any]] = {}
    """Those of fields that do not have that of their type."""

    def __init_subclass__(cls) -> None:
        Message.made[cls.kind] = cls

    def __init__(self, **fields: Any) -> None:
        self._clear()
        for name, value in fields.items():
            kind, repeated = self._field(name)
            if repeated:
                getattr(self, name).extend(value)
            elif kind in wire.FIELDS:
                getattr(self, name).CopyFrom(value)
            else:
                setattr(self, name, value)

    def _clear(self) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_in_parent", False)

    def _field(self, name: str) -> tuple[str, bool]:
        """The kind of a field, and whether it is repeated."""
        for known, kind, repeated in wire.FIELDS[self.kind].values():
            if known == name:
                return kind, repeated
        raise AttributeError(f"a message {self.kind} has no field {name!r}")

    def __getattr__(self, name: str) -> Any:
        kind, repeated = self._field(name)
        if name not in self._values:
            if not repeated and kind not in wire.FIELDS:
                return self.defaults.get(name, _DEFAULTS[kind])
            made = self.made.get(kind)
            self._values[name] = Repeated(made) if repeated or made is None else made()
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        kind, repeated = self._field(name)
        if repeated or kind in wire.FIELDS:
            raise AttributeError(
                f"{name} of a {self.kind} cannot be assigned: change what it holds"
            )
        self._values[name] = _TAKEN[kind](value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self.kind, self._plain()) == (
            other.kind,
            other._plain(),
        )

    __hash__ = None  # type: ignore[assignment]  # messages change

    def __str__(self) -> str:
        return message_text(self.kind, self._plain())

    __repr__ = __str__

    # ---- what is set

    def HasField(self, field_name: str) -> bool:
        """Whether a field that is not repeated is set."""
        _, repeated = self._field(field_name)
        if repeated:
            raise ValueError(f"{field_name} of a {self.kind} is repeated: look at its length")
        value = self._values.get(field_name)
        return value._is_set() if isinstance(value, Message) else value is not None

    def ClearField(self, field_name: str) -> None:
        """Set a field back to its default."""
        self._field(field_name)
        self._values.pop(field_name, None)

    def Clear(self) -> None:
        """Set all fields back to their defaults."""
        self._clear()

    def SetInParent(self) -> None:
        """Count as set in the message that this one belongs to, even if it is empty."""
        object.__setattr__(self, "_in_parent", True)

    def CopyFrom(self, other_msg: Message) -> None:
        """Become equal to another message of this type."""
        self._take(other_msg._plain())

    def _is_set(self) -> bool:
        return self._in_parent or bool(self._plain())

    # ---- bytes

    def _plain(self) -> wire.Message:
        """The fields that are set."""
        found: wire.Message = {}
        for name, value in self._values.items():
            if isinstance(value, list):
                plain = [item._plain() if isinstance(item, Message) else item for item in value]
                found.update({name: plain} if plain else {})
            elif not isinstance(value, Message):
                found[name] = value
            elif value._is_set():
                found[name] = value._plain()
        return found

    def _take(self, message: wire.Message) -> None:
        self._clear()
        self.SetInParent()
        for name, value in message.items():
            kind, repeated = self._field(name)
            if kind in wire.FIELDS:
                for item in value if repeated else [value]:
                    part = getattr(self, name)
                    (part.add() if repeated else part)._take(item)
            elif repeated:
                getattr(self, name).extend(value)
            else:
                setattr(self, name, value)

    def SerializeToString(self) -> bytes:
        """The message as bytes."""
        return wire.encode(self.kind, self._plain())

    def ByteSize(self) -> int:
        """How many bytes the message has."""
        return len(self.SerializeToString())

    def ParseFromString(self, serialized: bytes) -> int:
        """Become the message that some bytes are; returns their number.

        Raises:
            EnforceNotMet: they are none.
        """
        self._take(wire.decode(self.kind, bytes(serialized)))
        return len(serialized)

    @classmethod
    def FromString(cls, s: bytes) -> Self:
        """The message that some bytes are."""
        made = cls()
        made.ParseFromString(s)
        return made
