"""Messages in memory that both ends of a line see; only where they lie goes through the socket.

A message lies in a room. Whoever receives it uses it there, without a copy; when nobody does any
more, that is written into the room, which then takes another message. So arrays of a message may
be kept for as long as anybody likes. Rooms have no names: the sender makes them
(``memfd_create``), and their descriptors go through the Unix socket of the line.
"""

from __future__ import annotations

import functools
import os
import struct
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from dpexec.engine.exchange.shared import Bytes, mapped
from dpexec.engine.exchange.wire import LINE, GangError

__all__ = ["Borrower", "Lender", "Loan", "is_worth_it"]

_PLACE = struct.Struct("<QQQQQ")  # the room: number, bytes, is it new; turn; bytes of the message
_LEAST = 1 << 12  # bytes of a message that is worth it
_MOST = 1 << 26
_SMALLEST = 1 << 16  # bytes of a room
_ROOMS = 16


def is_worth_it(nbytes: int) -> bool:
    """Whether a message of so many bytes is lent if there is room."""
    return _LEAST <= nbytes <= _MOST


class Loan(NamedTuple):
    """A message that lies in a room.

    Args:
        place: bytes that say where it lies.
        room: descriptor of a room that the receiver does not know; None: it knows this one.
    """

    place: bytes
    room: int | None

    def close(self) -> None:
        """The receiver has the descriptor, or will never get it."""
        if self.room is not None:
            os.close(self.room)


class _Room:
    """Memory for a message; at its beginning the receiver writes whose turn is over.

    Args:
        memory: that both see.

    Attributes:
        word: that beginning; equal to the turn: the receiver uses no message in it.
        size: bytes of a message that it takes, and of the word.
        turn: how many messages it has taken.
    """

    def __init__(self, memory: Bytes) -> None:
        self.word = memory[:8].data.cast("Q")
        self.memory, self.size, self.turn = memory.data, len(memory), 0


class Lender:
    """The rooms of a sender."""

    def __init__(self) -> None:
        self._rooms: list[_Room] = []

    def lend(self, buffers: Sequence[memoryview], nbytes: int) -> Loan | None:
        """Put a message into a room.

        Args:
            buffers: what it holds.
            nbytes: how many bytes that are.

        Returns:
            What is sent. None if there is no room: the receiver uses all, or the system has no
            memory or descriptor for another one.
        """
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
        is_new = new is not None
        return Loan(_PLACE.pack(number, room.size, is_new, room.turn, nbytes), new)

    def _open(self, number: int, least: int) -> int:
        """Make another room of some bytes at least; returns its descriptor."""
        size = max(_SMALLEST, 1 << (least - 1).bit_length())
        room = os.memfd_create("dpexec-messages", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(room, 0, size)
            self._rooms[number : number + 1] = [_Room(mapped(room, size))]
        except BaseException:
            os.close(room)
            raise
        return room


class Borrower:
    """The rooms that a receiver knows.

    Args:
        sender: whose rooms they are, as people know it.
    """

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self._rooms: dict[int, Bytes] = {}
        self._used: dict[int, weakref.ref[Any]] = {}

    def take(self, place: memoryview, descriptors: deque[int]) -> memoryview:
        """A message in a room, which is the receiver's until nothing refers to it.

        Args:
            place: what the sender says of it.
            descriptors: those that came; that of a new room is taken.

        Raises:
            GangError: it does not lie there, or there is no memory to see it.
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


def _leave(memory: Bytes, turn: int, message: Any) -> None:
    """Write into a room that nobody uses its message any more."""
    memory[:8].data.cast("Q")[0] = turn
