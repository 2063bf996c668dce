"""Encodes and decodes the messages of Paddle's ``framework.proto``.

The format is frozen (Paddle 1.x), so a table of its fields and a small proto2 codec are enough. A
message is a dict of its fields. A repeated field is a list, and a missing field has no entry.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from dpexec.engine.core.errors import EnforceNotMet

__all__ = ["FIELDS", "Message", "decode", "encode"]

Message = dict[str, Any]

_VARINTS = ("int", "bool")
FIELDS: dict[str, dict[int, tuple[str, str, bool]]] = {
    "Version": {1: ("version", "int", False)},
    "Attr": {
        1: ("name", "str", False),
        2: ("type", "int", False),
        3: ("i", "int", False),
        4: ("f", "float", False),
        5: ("s", "str", False),
        6: ("ints", "int", True),
        7: ("floats", "float", True),
        8: ("strings", "str", True),
        10: ("b", "bool", False),
        11: ("bools", "bool", True),
        12: ("block_idx", "int", False),
        13: ("l", "int", False),
        14: ("blocks_idx", "int", True),
        15: ("longs", "int", True),
    },
    "Slot": {1: ("parameter", "str", False), 2: ("arguments", "str", True)},
    "OpDesc": {
        1: ("inputs", "Slot", True),
        2: ("outputs", "Slot", True),
        3: ("type", "str", False),
        4: ("attrs", "Attr", True),
        5: ("is_target", "bool", False),
    },
    "TensorDesc": {1: ("data_type", "int", False), 2: ("dims", "int", True)},
    "LoDTensorDesc": {1: ("tensor", "TensorDesc", False), 2: ("lod_level", "int", False)},
    "ReaderDesc": {1: ("lod_tensor", "LoDTensorDesc", True)},
    "Tuple": {1: ("element_type", "int", True)},
    "VarType": {
        1: ("type", "int", False),
        2: ("selected_rows", "TensorDesc", False),
        3: ("lod_tensor", "LoDTensorDesc", False),
        4: ("tensor_array", "LoDTensorDesc", False),
        5: ("reader", "ReaderDesc", False),
        7: ("tuple", "Tuple", False),
    },
    "VarDesc": {
        1: ("name", "str", False),
        2: ("type", "VarType", False),
        3: ("persistable", "bool", False),
        4: ("need_check_feed", "bool", False),
    },
    "BlockDesc": {
        1: ("idx", "int", False),
        2: ("parent_idx", "int", False),
        3: ("vars", "VarDesc", True),
        4: ("ops", "OpDesc", True),
        5: ("forward_block_idx", "int", False),
    },
    "ProgramDesc": {1: ("blocks", "BlockDesc", True), 4: ("version", "Version", False)},
}
"""Message, number, then (field, kind, repeated); a kind is int, bool, float, str or a message."""


# ---- writing


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _field(number: int, kind: str, value: Any) -> bytes:
    if kind in _VARINTS:
        return _varint(number << 3) + _varint(int(value))
    if kind == "float":
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode("utf-8", "surrogateescape") if kind == "str" else encode(kind, value)
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def encode(kind: str, message: Message) -> bytes:
    """The bytes of a message.

    Args:
        kind: name of the message type, such as ``"ProgramDesc"``.
        message: its fields.
    """
    parts: list[bytes] = []
    for number, (name, field_kind, repeated) in FIELDS[kind].items():
        if name in message:
            values = message[name] if repeated else [message[name]]
            parts.extend(_field(number, field_kind, value) for value in values)
    return b"".join(parts)


# ---- reading


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is longer than 64 bits")


def _records(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _read_varint(data, at)
            yield key >> 3, wire, value
            continue
        if wire == 2:
            size, at = _read_varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} is none of this format")
        if at + size > len(data):
            raise ValueError(f"{at + size - len(data)} bytes are missing")
        yield key >> 3, wire, data[at : at + size]
        at += size


def _signed(value: int, kind: str) -> int | bool:
    if kind == "bool":
        return bool(value)
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _values(kind: str, wire: int, value: Any) -> list[Any]:
    if kind in _VARINTS and wire == 0:
        return [_signed(value, kind)]
    if kind in _VARINTS and wire == 2:  # packed
        found, at = [], 0
        while at < len(value):
            number, at = _read_varint(value, at)
            found.append(_signed(number, kind))
        return found
    if kind == "float" and wire in (2, 5):
        return [number for (number,) in struct.iter_unpack("<f", value)]
    if kind == "str" and wire == 2:
        return [bytes(value).decode("utf-8", "surrogateescape")]
    if kind in FIELDS and wire == 2:
        return [_decoded(kind, value)]
    raise ValueError(f"a field of kind {kind} has wire type {wire}")


def _decoded(kind: str, data: memoryview) -> Message:
    fields = FIELDS[kind]
    message: Message = {}
    for number, wire, value in _records(data):
        if number not in fields:
            continue  # a field of a later version, which readers may skip
        name, field_kind, repeated = fields[number]
        values = _values(field_kind, wire, value)
        if repeated:
            message.setdefault(name, []).extend(values)
        elif values:
            message[name] = values[-1]
    return message


def decode(kind: str, data: bytes) -> Message:
    """The fields of a message.

    Args:
        kind: name of the message type.
        data: its bytes.

    Raises:
        EnforceNotMet: the bytes are not such a message.
    """
    try:
        return _decoded(kind, memoryview(data))
    except (ValueError, IndexError, struct.error) as error:
        raise EnforceNotMet(f"these {len(data)} bytes are no valid {kind}: {error}") from None
