"""Messages between processes as bytes: arrays in parts, and facts and values that describe them.

A message has parts, each padded to a line of the cache, behind their number and sizes. Trainers,
servers and members of gangs send facts in JSON and values of variables as plain arrays. Nothing
that comes from them is ever unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from dpexec.engine.core.variable_values import flat, value_of
from dpexec.engine.exchange.channels import LINE, Channel
from dpexec.engine.exchange.wire import GangError, Tag, exchange

__all__ = [
    "PADDING",
    "Message",
    "Room",
    "Values",
    "array_in",
    "bytes_of",
    "decode",
    "encode",
    "joined",
    "parted",
    "talk",
]

PADDING = memoryview(bytes(LINE))
"""What ends a line; slices of it fill what is left of one."""

Values: TypeAlias = Mapping[Any, Any]
"""Values of variables by what JSON can hold as a name: a text, or a tuple of texts and numbers."""

_SIZE = np.dtype("<u8")
_KINDS = "biuf"  # of numbers that may come
_NO_MESSAGE = (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError)


# ---- parts


def bytes_of(array: np.ndarray[Any, Any]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bytes of an array; a view of it if it lies in one piece."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def array_in(part: memoryview, dtype: Any, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """The array whose bytes are a part of a message.

    Args:
        part: the bytes.
        dtype: of the array.
        shape: of the array; -1 stands for what the bytes say.

    Raises:
        ValueError: they are no such array.
    """
    kind = np.dtype(dtype)
    if kind.kind not in _KINDS:
        raise ValueError(f"an array of {kind}")
    return np.asarray(part).view(kind).reshape(shape)


def joined(parts: Sequence[memoryview]) -> list[memoryview]:
    """The buffers of a message that has some parts; none is copied."""
    sizes = [part.nbytes for part in parts]
    head = memoryview(struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes))
    found = [head, PADDING[: -len(head) % LINE]]
    for part, size in zip(parts, sizes, strict=True):
        found += part, PADDING[: -size % LINE]
    return found


def parted(data: memoryview) -> list[memoryview]:
    """The parts of a message; they use its memory.

    Args:
        data: all that came.

    Raises:
        ValueError: it is no message.
    """
    count = int.from_bytes(data[: _SIZE.itemsize], "little")
    at = _SIZE.itemsize * (count + 1)
    if at > len(data):
        raise ValueError(f"{len(data)} bytes for {count} parts")
    parts = []
    for size in np.frombuffer(data, _SIZE, count, _SIZE.itemsize).tolist():
        at += -at % LINE
        parts.append(data[at : at + size])
        at += size
    if at + -at % LINE != len(data):
        raise ValueError(f"{len(data)} bytes, but the parts have {at}")
    return parts


class Room:
    """The place of a frame of any size; :attr:`data` is what came.

    It begins where vector instructions like arrays to begin.

    Args:
        sender: who sends it, as people know it.
    """

    def __init__(self, sender: str) -> None:
        self.data = memoryview(b"")
        self._sender = sender

    def __call__(self, nbytes: int) -> Sequence[memoryview]:
        """Take so many bytes.

        Raises:
            GangError: there is no memory for them.
        """
        try:
            memory = np.empty(nbytes + LINE, np.uint8)  # not filled: it may never come
        except (MemoryError, OverflowError, ValueError) as error:
            raise GangError(
                f"{self._sender} announces {nbytes} bytes, for which there is no memory"
            ) from error
        start = -memory.__array_interface__["data"][0] % LINE
        self.data = memory[start : start + nbytes].data
        return [self.data]


# ---- facts and values


@dataclass(frozen=True)
class Message:
    """What is sent at once.

    Args:
        said: facts that JSON can hold.
        values: values of variables on the host that go along.
    """

    said: Any = None
    values: Values = field(default_factory=dict)


def encode(message: Message) -> list[memoryview]:
    """The buffers of a message; arrays are not copied if they lie in one piece."""
    described, arrays = [], []
    for name, value in message.values.items():
        kind, pieces = flat(value)
        described.append([name, kind, [[piece.dtype.str, piece.shape] for piece in pieces]])
        arrays += pieces
    head = json.dumps([message.said, described]).encode()
    return joined([memoryview(head), *(bytes_of(array).data for array in arrays)])


def decode(data: memoryview, sender: str) -> Message:
    """The message in some bytes; its arrays use them.

    Args:
        data: what came.
        sender: who sent it, for errors.

    Raises:
        GangError: that is no message.
    """
    try:
        head, *parts = parted(data)
        said, described = json.loads(bytes(head))
        forms = [form for *_, forms in described for form in forms]
        arrays = (array_in(part, *form) for part, form in zip(parts, forms, strict=True))
        values = {
            tuple(name) if isinstance(name, list) else name: value_of(
                kind, list(islice(arrays, len(forms)))
            )
            for name, kind, forms in described
        }
        if next(arrays, None) is not None:
            raise ValueError("more arrays than values")
    except _NO_MESSAGE as error:
        raise GangError(f"{sender} sent something that is no message: {error}") from error
    return Message(said, values)


def talk(
    channels: Mapping[int, Channel],
    tag: Tag,
    messages: Mapping[int, Message],
    of: Iterable[int],
    limit: float,
) -> dict[int, Message]:
    """Send messages to some, and take those of some, all at once.

    Args:
        channels: the connections, by rank.
        tag: what they belong to.
        messages: what goes to whom.
        of: ranks of those who are listened to.
        limit: seconds in which nothing may happen.

    Returns:
        What they said, by rank.

    Raises:
        GangError: somebody is gone, silent, ends the run, or sends something else.
    """
    rooms = {rank: Room(channels[rank].name) for rank in of}
    encoded = {id(message): encode(message) for message in messages.values()}
    sends = {rank: encoded[id(message)] for rank, message in messages.items()}
    exchange(channels, tag, sends, rooms, limit)
    return {rank: decode(room.data, channels[rank].name) for rank, room in rooms.items()}
