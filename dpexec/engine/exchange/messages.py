"""Messages between processes as bytes.

A message begins with the number and the sizes of its parts; each part is padded to a line of the
cache. Trainers, servers and members of gangs send facts in JSON, and values of variables as plain
arrays. Nothing that they send is ever unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.variable_values import flat, value_of
from dpexec.engine.exchange.channels import LINE, Channel
from dpexec.engine.exchange.wire import GangError, Tag, exchange

__all__ = [
    "PADDING",
    "Large",
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
"""Zeros of a line; slices of it pad parts to whole lines."""

Values: TypeAlias = Mapping[Any, Any]
"""Values of variables by name, which is a text or a tuple of texts and numbers, as in JSON."""

_SIZE = np.dtype("<u8")
_KINDS = "biuf"  # kinds of numbers that arrays may have
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
        shape: of the array; one size may be -1, which follows from the number of bytes.

    Raises:
        ValueError: the bytes are no such array.
    """
    kind = np.dtype(dtype)
    if kind.kind not in _KINDS:
        raise ValueError(f"an array of {kind}")
    return np.asarray(part).view(kind).reshape(shape)


def joined(parts: Sequence[memoryview]) -> list[memoryview]:
    """The buffers of a message with some parts; parts are not copied."""
    sizes = [part.nbytes for part in parts]
    head = memoryview(struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes))
    found = [head, PADDING[: -len(head) % LINE]]
    for part, size in zip(parts, sizes, strict=True):
        found += part, PADDING[: -size % LINE]
    return found


def parted(data: memoryview) -> list[memoryview]:
    """The parts of a message, as views.

    Args:
        data: the bytes of the message.

    Raises:
        ValueError: they are no message.
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
    """The place of a frame of any size; :attr:`data` is its bytes.

    It begins at a line of the cache, where vector instructions on arrays are faster.

    Args:
        sender: the sender's name in errors.
    """

    def __init__(self, sender: str) -> None:
        self.data = memoryview(b"")
        self._sender = sender

    def __call__(self, nbytes: int) -> Sequence[memoryview]:
        """Make room for ``nbytes`` bytes.

        Raises:
            GangError: there is no memory for them.
        """
        try:
            memory = np.empty(nbytes + LINE, np.uint8)  # not filled: the bytes may never come
        except (MemoryError, OverflowError, ValueError) as error:
            raise GangError(
                f"{self._sender} announces {nbytes} bytes, for which there is no memory"
            ) from error
        start = -memory.__array_interface__["data"][0] % LINE
        self.data = memory[start : start + nbytes].data
        return [self.data]


class Large:
    """A large message while it comes in.

    Args:
        name: of the sender.
        begun: its first bytes, which have come.
        nbytes: the bytes of the whole message.

    Raises:
        GangError: there is no memory for it.
    """

    def __init__(self, name: str, begun: memoryview, nbytes: int) -> None:
        room = Room(name)
        room(nbytes)
        self.data = room.data
        self.data[: len(begun)] = begun
        self._left = self.data[len(begun) :]

    @property
    def done(self) -> bool:
        """Whether all has come."""
        return not len(self._left)

    def move(self, channel: Channel) -> int:
        """Receive some; returns how many bytes."""
        count = channel.receive(self._left)
        self._left = self._left[count:]
        return count


# ---- facts and values


@dataclass(frozen=True)
class Message:
    """A message between processes.

    Args:
        said: facts that JSON can hold.
        values: values of variables, which lie on the host.
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
    """The message in some bytes; its arrays are views of them.

    Args:
        data: the bytes.
        sender: the sender's name in errors.

    Raises:
        GangError: the bytes are no message.
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
    """Send messages to some processes and receive messages from some, all at once.

    Args:
        channels: the connections, by rank.
        tag: the tag of the frames.
        messages: the message for each rank.
        of: ranks from which a message is received.
        limit: seconds without any progress after which it fails.

    Returns:
        The received messages, by rank.

    Raises:
        GangError: a process is gone, is silent, ends the run, or sends something else.
    """
    rooms = {rank: Room(channels[rank].name) for rank in of}
    encoded = {id(message): encode(message) for message in messages.values()}
    sends = {rank: encoded[id(message)] for rank, message in messages.items()}
    exchange(channels, tag, sends, rooms, limit)
    return {rank: decode(room.data, channels[rank].name) for rank, room in rooms.items()}
