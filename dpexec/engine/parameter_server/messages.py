"""Named arrays as bytes: what trainers and parameter servers send each other.

A message is the length of a description, the description in JSON, and the bytes of the arrays. A
sparse gradient travels as its row numbers and its rows. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.exchange.wire import Channel, GangError, Room, Tag, exchange

__all__ = ["Message", "Values", "ask", "decode", "encode", "receive", "send"]

Values: TypeAlias = Mapping[str, np.ndarray[Any, Any] | SelectedRows]
"""Arrays by name; some rows of a tall matrix are SelectedRows."""

_Bytes: TypeAlias = bytearray | memoryview

_LENGTH = struct.Struct("<Q")
_KINDS = "biuf"  # of numbers that may come
_NO_MESSAGE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    OverflowError,
    RecursionError,
    struct.error,
)


@dataclass(frozen=True)
class Message:
    """What is sent at once.

    Args:
        kind: what is wanted, or happened.
        values: what goes along.
    """

    kind: str
    values: Values = field(default_factory=dict)


def encode(message: Message) -> list[memoryview]:
    """The buffers of a message; arrays are not copied if they lie in one piece."""
    arrays: list[Any] = []
    described: list[Any] = []
    for name, value in message.values.items():
        height, parts = None, [value]
        if isinstance(value, SelectedRows):
            height, parts = value.height(), [value.row_array, value.value]
        pieces = [np.ascontiguousarray(part) for part in parts]
        described.append([name, height, [[piece.dtype.str, piece.shape] for piece in pieces]])
        arrays += pieces
    head = json.dumps([message.kind, described]).encode()
    buffers = [memoryview(_LENGTH.pack(len(head)) + head)]
    return buffers + [memoryview(array.reshape(-1)).cast("B") for array in arrays if array.size]


def decode(data: _Bytes, sender: str) -> Message:
    """The message in some bytes; its arrays use them.

    Args:
        data: what came.
        sender: who sent it, for errors.

    Raises:
        GangError: that is no message.
    """
    try:
        (length,) = _LENGTH.unpack_from(data)
        at = _LENGTH.size + length
        kind, described = json.loads(bytes(data[_LENGTH.size : at]))
        values: dict[str, Any] = {}
        for name, height, forms in described:
            parts = []
            for dtype, shape in forms:
                part = _array(data, at, np.dtype(dtype), shape)
                at += part.nbytes
                parts.append(part)
            values[name] = parts[0] if height is None else SelectedRows(parts[0], height, parts[1])
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes too many")
    except _NO_MESSAGE as error:
        raise GangError(f"{sender} sent something that is no message: {error}") from error
    return Message(kind, values)


def _array(data: _Bytes, at: int, dtype: np.dtype[Any], shape: Sequence[int]) -> Any:
    if dtype.kind not in _KINDS or any(dim < 0 for dim in shape):
        raise ValueError(f"an array {shape} of {dtype}")
    return np.frombuffer(data, dtype, int(np.prod(shape, dtype=np.int64)), at).reshape(shape)


def send(channel: Channel, tag: Tag, message: Message, limit: float) -> None:
    """Send a message.

    Args:
        channel: to whom.
        tag: what it belongs to.
        message: what.
        limit: seconds in which nothing may happen.

    Raises:
        GangError: the other side is gone, or takes nothing.
    """
    exchange({0: channel}, tag, {0: encode(message)}, {}, limit)


def receive(channel: Channel, tag: Tag, limit: float) -> Message:
    """Take a message.

    Args:
        channel: from whom.
        tag: what it belongs to.
        limit: seconds in which nothing may happen.

    Raises:
        GangError: the other side is gone, silent, or ends the run.
    """
    room = Room(channel.name)
    exchange({0: channel}, tag, {}, {0: room}, limit)
    return decode(room.data, channel.name)


def ask(
    channels: Mapping[int, Channel], tag: Tag, messages: Mapping[int, Message], limit: float
) -> dict[int, Message]:
    """Send a message to each of some, and take their answers, all at once.

    Args:
        channels: the connections.
        tag: what it belongs to.
        messages: what goes to whom.
        limit: seconds in which nothing may happen.

    Raises:
        GangError: somebody is gone, silent, or ends the run.
    """
    rooms = {at: Room(channels[at].name) for at in messages}
    sends = {at: encode(message) for at, message in messages.items()}
    exchange(channels, tag, sends, rooms, limit)
    return {at: decode(room.data, channels[at].name) for at, room in rooms.items()}
