"""Memory that the members of one host share.

It has no name, so nobody has to unlink it: a member makes it (``memfd_create``) and passes its
descriptor to the others through the Unix sockets that connect them. It is gone with the last
process that uses it, however that process ends.

Messages of a line may lie in rooms, which are such memory. The receiver uses a message there,
without a copy. When nothing refers to the message any more, that is written into the room, which
then takes another message. So arrays of a message may be kept for any time.
"""

from __future__ import annotations

import functools
import mmap
import os
import select
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.exchange.channels import LINE, Channel
from dpexec.engine.exchange.wire import GangError, Tag, gone, silent

__all__ = [
    "LEAST",
    "Borrower",
    "Bytes",
    "Lender",
    "Places",
    "hand_over",
    "is_place",
    "mapped",
    "new_memory",
    "share_memory",
    "with_room",
]

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
_TOKEN = b"memory"
_PLACE = struct.Struct("<QQQQQ")  # of a room: number, bytes, is it new; turn; bytes of the message
LEAST = 1 << 12
"""Bytes of a message from which on a room is faster than the socket."""
_MOST = 1 << 26  # bytes of the largest message that gets a room
_SMALLEST = 1 << 16  # bytes of the smallest room
_ROOMS = 16  # the most rooms of a sender


class Places:
    """The layout of a member's memory: slices by key."""

    def __init__(self) -> None:
        self._places: dict[Any, slice] = {}
        self.size = 0

    def add(self, key: Any, nbytes: int) -> None:
        """Add a slice of some bytes."""
        self._places[key] = slice(self.size, self.size + nbytes)
        self.size += -(-nbytes // LINE) * LINE

    def __getitem__(self, key: Any) -> slice:
        return self._places[key]


def share_memory(
    channels: Mapping[int, Channel], sizes: Mapping[int, int], rank: int, tag: Tag, limit: float
) -> dict[int, Bytes]:
    """Give every member memory that all members see.

    Args:
        channels: connections to the others, which are on this host.
        sizes: how many bytes each member provides, by rank.
        rank: of this member.
        tag: names its use in errors.
        limit: seconds.

    Returns:
        The memory, by rank of the member that provides it; members with 0 bytes are left out.

    Raises:
        GangError: a member did not answer.
        OSError: there is not enough memory.
    """
    found: dict[int, Bytes] = {}
    if sizes[rank]:
        fd, found[rank] = new_memory("dpexec-gang", sizes[rank])
        try:
            for channel in channels.values():
                hand_over(channel, fd, tag, limit)
        finally:
            os.close(fd)
    deadline = time.monotonic() + limit
    for other, channel in channels.items():
        if sizes[other]:
            fd = _take(channel, tag, deadline, limit)
            try:
                found[other] = mapped(fd, sizes[other])
            finally:
                os.close(fd)
    return found


def new_memory(name: str, size: int) -> tuple[int, Bytes]:
    """Memory that other processes can share, and its descriptor, which the caller closes.

    Args:
        name: says in ``/proc`` what it is for.
        size: in bytes.

    Raises:
        OSError: there is not enough memory, or the process may not have more.
    """
    try:
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, size)
            return fd, mapped(fd, size)
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        what = f"process {os.getpid()} of {socket.gethostname()} gets no {size} bytes of memory"
        raise OSError(
            error.errno,
            f"{what} to share with others of its host ({error.strerror}): free memory there, or "
            "raise the limits of its processes (memory of the container, `ulimit -n`, `ulimit -f`)",
        ) from error


def mapped(fd: int, size: int) -> Bytes:
    """The memory behind a descriptor.

    Raises:
        OSError, ValueError: it has fewer bytes, or the process has no room for them.
    """
    memory = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return np.frombuffer(memory, np.uint8)


def hand_over(channel: Channel, fd: int, tag: Tag, limit: float) -> None:
    """Give a member of this host a descriptor, which it expects.

    Args:
        channel: the connection to the member.
        fd: the descriptor.
        tag: names its use in errors.
        limit: seconds that it may take until the member has read what was sent before.

    Raises:
        GangError: the member is gone, or does not read.
    """
    try:
        while not channel.send([_TOKEN], fd):
            poll = select.poll()
            poll.register(channel.sock, select.POLLOUT)
            if not poll.poll(limit * 1000):
                raise silent([channel.name], limit, tag)
    except OSError as error:
        raise gone(channel.name, error, tag) from error


def _take(channel: Channel, tag: Tag, deadline: float, limit: float) -> int:
    poll = select.poll()
    poll.register(channel.sock, select.POLLIN)
    if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
        raise silent([channel.name], limit, tag)
    try:
        token, fds, _, _ = socket.recv_fds(channel.sock, len(_TOKEN), 1)
    except OSError as error:
        raise gone(channel.name, error, tag) from error
    if token != _TOKEN or len(fds) != 1:
        for fd in fds:
            os.close(fd)
        raise GangError(f"{channel.name} ended the run at {tag}")
    return int(fds[0])


# ---- messages in memory that both ends of a line see


class _Room:
    """Memory for one message at a time.

    Args:
        memory: memory that sender and receiver see.

    Attributes:
        word: its first 8 bytes. The receiver writes the turn of the message that it no longer uses;
            the room is free when that equals ``turn``.
        size: the bytes of the memory, with the line of the word.
        turn: how many messages it has held.
    """

    def __init__(self, memory: Bytes) -> None:
        self.word = memory[:8].data.cast("Q")
        self.memory, self.size, self.turn = memory.data, len(memory), 0


class Lender:
    """The rooms of a sender."""

    def __init__(self) -> None:
        self._rooms: list[_Room] = []

    def lend(
        self, buffers: Sequence[memoryview | bytes], nbytes: int
    ) -> tuple[bytes, int | None] | None:
        """Put a message into a room.

        Args:
            buffers: the message.
            nbytes: how many bytes it has.

        Returns:
            The description of its place, and the descriptor of the room if the room is new to the
            receiver. None if there is no room for it: the message is too large, or all rooms are in
            use, or the system has no memory or descriptor for another room.
        """
        if nbytes > _MOST:
            return None
        new, free = None, -1
        for number, room in enumerate(self._rooms):
            if room.word[0] == room.turn:
                free = number
                if room.size >= nbytes + LINE:
                    break
        else:
            number = free if len(self._rooms) == _ROOMS else len(self._rooms)
            if number < 0:
                return None
            try:
                new = self._open(number, nbytes + LINE)
            except OSError:
                return None
            room = self._rooms[number]
        memory, at = room.memory, LINE
        for buffer in buffers:
            end = at + len(buffer)
            memory[at:end] = buffer
            at = end
        room.turn += 1
        return _PLACE.pack(number, room.size, new is not None, room.turn, nbytes), new

    def _open(self, number: int, least: int) -> int:
        """Make a room of at least some bytes; returns its descriptor."""
        size = max(_SMALLEST, 1 << (least - 1).bit_length())
        room, memory = new_memory("dpexec-messages", size)
        self._rooms[number : number + 1] = [_Room(memory)]
        return room


class Borrower:
    """The rooms that a receiver knows.

    Args:
        sender: the sender's name in errors.
    """

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self._rooms: dict[int, Bytes] = {}
        self._used: dict[int, weakref.ref[Any]] = {}

    def take(self, place: memoryview, descriptors: deque[int]) -> memoryview:
        """A message in a room, which stays valid as long as something refers to it.

        Args:
            place: the sender's description of its place.
            descriptors: the descriptors that came; a new room's is taken from them.

        Raises:
            GangError: the room is unknown or too small, or it cannot be mapped.
        """
        number, size, is_new, turn, nbytes = _PLACE.unpack(place)
        if is_new and descriptors:
            room = descriptors.popleft()
            try:
                self._rooms[number] = mapped(room, size)
            except (OSError, ValueError) as error:
                raise GangError(f"no way to memory of {self._sender}: {error}") from error
            finally:
                os.close(room)
        memory = self._rooms.get(number)
        if memory is None or LINE + nbytes > len(memory):
            raise GangError(f"{self._sender} sent a message in memory that it has not shared")
        message = memory[LINE : LINE + nbytes]
        over = functools.partial(_leave, memory, turn)
        self._used[number] = weakref.ref(message, over)
        return message.data


def is_place(message: memoryview) -> bool:
    """Whether these bytes describe the place of a message, and are none: those are whole lines."""
    return len(message) == _PLACE.size


def with_room(place: memoryview, channel: Channel, tag: Tag, limit: float) -> deque[int]:
    """The descriptor of a message's room, if the sender says that it is new, and gives it now.

    Args:
        place: the sender's description of the place.
        channel: the connection to the sender.
        tag: names its use in errors.
        limit: seconds.

    Raises:
        GangError: the sender does not give it.
    """
    _, _, is_new, _, _ = _PLACE.unpack(place)
    return deque([_take(channel, tag, time.monotonic() + limit, limit)] if is_new else [])


def _leave(memory: Bytes, turn: int, message: Any) -> None:
    """Write into a room that its message is no longer used."""
    memory[:8].data.cast("Q")[0] = turn
